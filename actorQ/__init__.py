"""ActorQ: a full-precision learner feeds actors that act with quantized weights."""

from actorQ.core import console

console.check_program()
