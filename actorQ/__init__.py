"""ActorQ: a full-precision learner feeds actors that act with quantized weights."""
