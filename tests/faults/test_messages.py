"""Damaged model messages: the fuzzer itself, and their way through broadcaster and actor."""

import json

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.policy.native import library
from actorQ.wire import messages
from tests.faults import fuzz_messages
from tests.faults import message_faults

WHOLE = fuzz_messages.Form(8, 32, False, False)


@pytest.fixture(scope="module")
def receiver():
    return fuzz_messages.Receiver(WHOLE, library.available())


def test_fuzzer_nothing_gets_through():
    forms = list(fuzz_messages.forms(library.available()))
    assert {form.push for form in forms} == {"", "float32", "bfloat16"}
    # Every fault in every form.
    tally = fuzz_messages.fuzz(len(message_faults.FAULTS) * len(forms), 1, library.available())
    assert not tally.failures
    assert sum(tally.refused.values()) > 20 * sum(tally.taken.values()) / 10
    assert set(tally.refused) == set(message_faults.FAULTS)
    for kind in message_faults.ALWAYS_REFUSED:
        assert tally.taken[kind] == 0


@pytest.mark.parametrize("kind", message_faults.FAULTS)
def test_fault_leaves_the_message_that_it_was_given(receiver, kind):
    before = [part.tobytes() for part in receiver.message]
    rng = np.random.default_rng(0)
    drawn = [message_faults.draw(kind, receiver.message, rng) for _ in range(20)]
    assert [part.tobytes() for part in receiver.message] == before
    # A fault that changes nothing would test nothing.
    changed = [[part.tobytes() for part in message] != before for message in drawn]
    assert sum(changed) > 10


def test_tally_counts_an_exception_of_another_kind_as_a_failure(receiver):
    class Broken:
        architecture = receiver.architecture

        def take(self, message):
            raise KeyError("scale")

    tally = fuzz_messages.Tally()
    tally.try_one(Broken(), "version", receiver.message)
    assert tally.failures[0][0] == "version: KeyError: 'scale'"


def test_tally_counts_a_bad_message_that_was_taken_as_a_failure(receiver):
    tally = fuzz_messages.Tally()
    tally.try_one(receiver, "blob truncated", receiver.message)
    assert "taken for a good message" in tally.failures[0][0]
    assert tally.taken["blob truncated"] == 1


@pytest.mark.parametrize("quantize", [8, 4, 3])
def test_scales_that_overflow_are_refused(quantize):
    if quantize < 8 and not library.available():
        pytest.skip("the native kernels were not built")
    receiver = fuzz_messages.Receiver(
        fuzz_messages.Form(quantize, 32, False, False), library.available()
    )
    header, blob = receiver.message
    fields = json.loads(header.tobytes())
    names = [entry["name"] for entry in fields["entries"]]
    first = fields["entries"][0]
    expected = {8: messages.INT8_CHANNELS, 4: messages.INT4_GROUPS, 3: messages.INT3_GROUPS}
    assert first["coding"] == expected[quantize]
    huge = np.float32(3e38)
    damaged = blob.copy()
    if first["coding"] == messages.INT8_CHANNELS:
        damaged[:4] = np.frombuffer(huge.tobytes(), np.uint8)
    else:
        damaged[:2] = np.frombuffer(huge.tobytes()[2:], np.uint8)
    message = message_faults.refit(message_faults.Message(header, damaged))
    with pytest.raises(errors.MessageError, match=f"scales of '{names[0]}'.*overflow"):
        receiver.take(message)


def test_main_writes_table_and_json(tmp_path, capsys):
    fuzz_messages.main(["--inputs", "260", "--out", str(tmp_path), "--seed", "3"])
    assert "| blob truncated " in capsys.readouterr().out
    record = json.loads((tmp_path / "fuzz_messages.json").read_text())
    assert sum(record["refused"].values()) + sum(record["taken"].values()) == 260
    assert record["failures"] == []
    assert "0 failures" in (tmp_path / "fuzz_messages.md").read_text()
