"""Post-training quantization of one agent at one width: quantize, save, evaluate, add a row.

    python -m baseline.ptq ALGO ENV BITS [--folder F] [--episodes N] [--seeds 0,2,4]

BITS: 2 to 32, fp16, bf16, or fp32 (evaluates only). The quantized agent goes to
`quantized/BITS/ALGO/ENV_1`, which `--folder quantized/BITS` and SB3's own loader read. The row goes
to `quantized/ptq.csv`, and with `--method` other than minmax to `quantized/methods.csv`.
"""

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from baseline.study import measuring_flags


def main(argv: list[str]) -> int:
    """Measures one row; see `cli.run` for errors."""
    if len(argv) != 4:
        raise errors.UserError(
            "takes three arguments: ALGO ENV BITS, for example ppo CartPole-v1 8."
        )
    _, algo, env, bits = argv
    cli.quiet_tensorflow()
    (request,) = measuring_flags.requests([(algo, env)], [bits])
    from baseline.agents import finding
    from baseline.agents import hub
    from baseline.quantization import schemes
    from baseline.study import measuring
    from baseline.study import row_agents

    finding.set_threads()
    if flags.FLAGS.hub:
        hub.fetch(request.algo, env, request.folder)
    agent = row_agents.load_agent(request.algo, env, request.folder)
    row_agents.check_same_agent(request, agent.path)
    measuring.check_same_calibration([request], request.rows().values())
    measuring.log_start(request)
    row = measuring.measure(request, agent)
    reference = request.full_precision.rows().get(request.full_precision.key)
    print(measuring.summary(row, reference))
    if request.scheme.bits != schemes.FP32:
        print(f"Agent: {measuring.quantized_folder(request)}")
    print(f"Row:   {request.csv_path}")
    return 0


if __name__ == "__main__":
    measuring_flags.define()
    flags.adopt_module_key_flags(measuring_flags)  # --help shows the key flags.
    cli.run(main, takes_arguments=True, name="ptq")
