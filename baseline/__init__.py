"""QuaRL's study of quantized policies: after training, in training, on devices; see docs/."""

from actorQ.core import console

console.check_program()
