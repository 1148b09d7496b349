"""Pickles that must not run would write a file; the tests check that it does not exist."""

from collections import OrderedDict
import copy
import glob
import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys

import numpy as np
import pytest

from actorQ.core import errors
from baseline.agents import pickle_machine
from baseline.agents import pickle_values
from baseline.agents import safe_pickle
from tests import trained_agents


class Bomb:
    """An object whose pickle calls any function."""

    def __init__(self, function, *args):
        self._call = (function, args)

    def __reduce__(self):
        return self._call


@pytest.fixture
def mark(tmp_path):
    """A file that an attack would create."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


def _armed(content, mark):
    """Returns whether Python's own unpickler runs the attack; otherwise a test shows nothing."""
    code = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
    subprocess.run([sys.executable, "-c", code], input=content, capture_output=True, check=False)
    fell = mark.exists()
    mark.unlink(missing_ok=True)
    return fell


def _u(text):
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


# Plain data.


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_round_trips(protocol):
    data = {
        "numbers": [1, -5, 2**40, 10**30, 1.5, True, None],
        "texts": ("a", "é\n", b"\x00\xff", bytearray(b"xyz")),
        "nested": {"tuple": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), "set": {1, "b", (2, 3)}},
        "frozen": frozenset([1, 2]),
        "ordered": OrderedDict([("z", 1), ("a", 2)]),
        3: "integer key",
        (1, "x"): "tuple key",
    }
    found = safe_pickle.load(pickle.dumps(data, protocol))
    assert found == data
    assert type(found["ordered"]) is OrderedDict
    assert list(found["ordered"]) == ["z", "a"]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.float64).reshape(3, 4)),
        np.arange(3, dtype=">i4"),
        np.array([True, False]),
        np.array(2.5),
        np.zeros((0, 3), np.float16),
        np.array([1 + 2j]),
        np.arange(3000, dtype=np.uint8).reshape(10, 300),
    ],
    ids=lambda array: f"{array.dtype}-{array.ndim}",
)
def test_arrays_round_trip(array, protocol):
    found = safe_pickle.load(pickle.dumps([array, array.copy()], protocol))[0]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == pickle.loads(pickle.dumps(array, protocol)).dtype
    assert found.shape == array.shape


@pytest.mark.parametrize("protocol", range(6))
def test_numpy_scalars_and_object_arrays_round_trip(protocol):
    shared = np.array([1.0, None, "x"], dtype=object)
    found = safe_pickle.load(
        pickle.dumps([np.float32(1.5), np.int64(-3), shared, shared], protocol)
    )
    assert found[0] == np.float32(1.5)
    assert type(found[1]) is np.int64
    assert list(found[2]) == [1.0, None, "x"]
    assert found[2] is found[3]


def test_numpy_2_module_paths_are_known():
    old = pickle.dumps([np.arange(3.0), np.float32(2)], 0)
    new = old.replace(b"numpy.core.multiarray", b"numpy._core.multiarray")
    assert new != old
    found = safe_pickle.load(new)
    np.testing.assert_array_equal(found[0], np.arange(3.0))
    assert found[1] == 2.0


def test_shared_and_recursive_objects_keep_their_identity():
    array = np.ones(3)
    data = {"a": array, "b": [array]}
    data["self"] = data
    found = safe_pickle.load(pickle.dumps(data))
    assert found["a"] is found["b"][0]
    assert found["self"] is found


def test_reads_paths_and_bytes(tmp_path):
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps([1]))
    assert safe_pickle.load(path) == [1]
    assert safe_pickle.load(str(path)) == [1]
    assert safe_pickle.load(pickle.dumps([2])) == [2]


def test_byte_order_of_one_array_is_not_numpys_own():
    safe_pickle.load(pickle.dumps(np.arange(3, dtype=">f4")))
    assert np.dtype("f4").byteorder in "=|"


def test_every_instruction_of_pickle_has_a_meaning():
    for operation in pickletools.opcodes:
        known = operation.name in pickle_machine.LITERALS or operation.name in (
            pickle_machine.CONSTANTS
        )
        assert (
            known
            or operation.name == "STOP"
            or hasattr(pickle_machine.Machine, "_do_" + operation.name.lower())
        )


# Objects of unknown classes.


@pytest.mark.skipif(not trained_agents.FOLDER.is_dir(), reason="no zoo agents here")
def test_statistics_of_every_zoo_agent_are_read():
    paths = sorted(glob.glob(f"{trained_agents.FOLDER}/*/*/*/vecnormalize.pkl"))
    assert len(paths) == 12
    for path in paths:
        stats = safe_pickle.load(path)
        assert stats.norm_obs is True
        assert stats.clip_obs == 10.0
        assert stats.epsilon == 1e-8
        assert stats.obs_rms.count > 0
        assert stats.obs_rms.mean.shape == stats.obs_rms.var.shape
        assert stats.obs_rms.mean.dtype == np.float64
        assert np.all(stats.obs_rms.var >= 0)


def test_placeholder_records_call_state_and_items():
    class_ = b"csome.where Thing\n".replace(b" ", b"\n")
    content = (
        b"\x80\x04" + class_ + b"K\x01K\x02\x86\x81"  # NEWOBJ with (1, 2).
        b"}(" + _u("weight") + b"K\x07" + _u("__class__") + b"K\x08ub"  # BUILD with a dictionary.
        b"(K\x05K\x06e"  # APPENDS.
        b"(" + _u("key") + b"K\x09u."  # SETITEMS.
    )
    found = safe_pickle.read(content)
    thing = found.value
    assert isinstance(thing, pickle_values.Placeholder)
    assert (thing.function.module, thing.function.name) == ("some.where", "Thing")
    assert thing.args == (1, 2)
    assert thing.weight == 7
    assert thing.__class__ is pickle_values.Placeholder  # Not what the file says.
    assert thing.items == [5, 6, ("key", 9)]
    assert found.calls == ["some.where.Thing"]
    assert not callable(thing)
    with pytest.raises(AttributeError, match="bias"):
        thing.bias  # noqa: B018
    assert copy.copy(thing).weight == 7


def test_state_with_slots_is_readable():
    content = b"ca\nB\n)\x81}" + _u("x") + b"K\x01s}" + _u("y") + b"K\x02s\x86b."
    found = safe_pickle.load(content)
    assert (found.x, found.y) == (1, 2)


@pytest.mark.parametrize("protocol", range(6))
def test_ordinary_objects_of_every_protocol(protocol):
    generator = random.Random(0)
    error = ValueError("text", 3)
    found = safe_pickle.load(pickle.dumps([generator, error, np.random.RandomState(0)], protocol))
    assert all(isinstance(item, pickle_values.Placeholder) for item in found)
    assert found[1].args == ("text", 3)


# Attacks.


@pytest.mark.parametrize("protocol", range(6))
def test_system_is_not_called(mark, protocol):
    content = pickle.dumps({"a": Bomb(os.system, f"touch {mark}")}, protocol)
    assert _armed(content, mark)
    found = safe_pickle.read(content)
    assert found.value["a"].args == (f"touch {mark}",)
    assert found.calls == ["posix.system"]


@pytest.mark.parametrize("function", [eval, exec])
def test_eval_and_exec_are_not_called(mark, function):
    content = pickle.dumps(Bomb(function, f"open({str(mark)!r}, 'w')"))
    assert _armed(content, mark)
    assert safe_pickle.read(content).calls == [f"builtins.{function.__name__}"]


def test_the_result_of_a_call_is_not_called(mark):
    # getattr(builtins, "open")(path, "w"), where each step is a REDUCE.
    content = (
        b"\x80\x04cbuiltins\ngetattr\ncbuiltins\n__import__\n"
        + _u("builtins")
        + b"\x85R"
        + _u("open")
        + b"\x86R"
        + _u(str(mark))
        + _u("w")
        + b"\x86R."
    )
    assert _armed(content, mark)
    found = safe_pickle.read(content)
    assert isinstance(found.value.function, pickle_values.Placeholder)
    assert found.value.args == (str(mark), "w")
    assert "builtins.getattr" in found.calls


def test_a_bomb_inside_arrays_states_and_keys_is_not_run(mark):
    bomb = Bomb(os.system, f"touch {mark}")
    array = np.empty(2, object)
    array[0] = bomb
    array[1] = {"x": [bomb]}
    content = pickle.dumps({"array": array, ("k",): bomb})
    assert _armed(content, mark)
    found = safe_pickle.read(content)
    assert found.calls == ["posix.system"]
    assert isinstance(found.value["array"][0], pickle_values.Placeholder)


def _attacks(path):
    touch = f"touch {path}"
    text = _u(touch)
    return {
        "stack_global": b"\x80\x04" + _u("posix") + _u("system") + b"\x93" + text + b"\x85R.",
        "stack_global_from_memo": b"\x80\x04"
        + (_u("posix") + b"\x94" + _u("system") + b"\x94" + b"00h\x00h\x01\x93" + text + b"\x85R."),
        "inst": b"(S'" + touch.encode() + b"'\nios\nsystem\n.",
        "obj": b"(cos\nsystem\n" + text + b"o.",
        "newobj_ex": b"\x80\x04csubprocess\nPopen\n" + text
        + (b"\x85}" + _u("shell") + b"\x88s\x92."),
        "dotted_name": b"\x80\x04" + _u("os") + _u("path.os.system") + b"\x93" + text + b"\x85R.",
        "memo_overwrite": b"cnumpy\ndtype\nq\x00cos\nsystem\nq\x000h\x00" + text + b"\x85R.",
        "dup": b"cos\nsystem\n2" + text + b"\x85R.",
        "after_garbage_on_stack": b"K\x01K\x02cos\nsystem\n" + text + b"\x85R.",
        "list_of_map": b"cbuiltins\nlist\ncbuiltins\nmap\ncos\nsystem\n]" + text
        + b"a\x86R\x85R.",
        "partial": b"cfunctools\npartial\ncos\nsystem\n" + text + b"\x86R)R.",
        "python_2_name": b"c__builtin__\neval\n" + _u(f"open({str(path)!r}, 'w')") + b"\x85R.",
        "numpy_runs_a_file": b"cnumpy.testing._private.utils\nrunstring\n"
        + _u(f"open({str(path)!r}, 'w')") + b"}\x86R.",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(_attacks("x")))
def test_attack_runs_nothing(mark, name):
    content = _attacks(mark)[name]
    try:
        found = safe_pickle.read(content)
    except errors.UserError:
        return  # Python's unpickler takes some that we call damaged.
    assert found.calls


@pytest.mark.parametrize("name", sorted(set(_attacks("x")) - {"newobj_ex"}))
def test_attacks_are_real(mark, name):
    assert _armed(_attacks(mark)[name], mark)


def test_nothing_that_is_named_is_imported(tmp_path, monkeypatch):
    (tmp_path / "named_by_a_pickle_only.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    found = safe_pickle.load(b"cnamed_by_a_pickle_only\nThing\n.")
    assert isinstance(found, pickle_values.Reference)
    assert "named_by_a_pickle_only" not in sys.modules
    assert not (tmp_path / "ran").exists()


def test_reconstruct_of_another_class_is_not_built(mark):
    content = (
        b"cnumpy.core.multiarray\n_reconstruct\ncevil\nArray\nK\x00\x85C\x01b\x87R" + b"K\x01b."
    )
    found = safe_pickle.read(content)
    assert isinstance(found.value, pickle_values.Placeholder)
    assert found.calls == ["numpy.core.multiarray._reconstruct"]


def test_extension_codes_and_persistent_ids_are_recorded(mark):
    assert safe_pickle.load(b"\x82\x01.").name == "extension 1"
    assert safe_pickle.load(b"\x83\x01\x02.").name == "extension 513"
    assert safe_pickle.load(b"\x84\x01\x02\x00\x00.").name == "extension 513"
    assert safe_pickle.load(b"Psome id\n.").args == ("some id",)
    assert safe_pickle.read(b"\x80\x04" + _u("id") + b"Q.").calls == ["pickle.persistent_load"]


def test_dunder_state_changes_no_class(mark):
    content = (
        b"ca\nB\n)\x81}(" + _u("__dict__") + b"K\x01" + _u("__getattr__") + b"cos\nsystem\n"
        + _u("args") + b"K\x02" + _u("states") + b"K\x03ub."
    )  # fmt: skip
    found = safe_pickle.load(content)
    assert found.args == ()
    assert len(found.states) == 1
    assert not hasattr(found, "__dict__")
    with pytest.raises(AttributeError):
        found.unknown  # noqa: B018


@pytest.mark.parametrize(
    "content",
    [
        b"]}" + _u("x") + b"K\x01sb.",  # A list's state.
        b"K\x01}b.",  # An integer's.
        b"cnumpy\ndtype\n" + _u("f4") + b"\x89\x88\x87R(K\x03" + _u("<") + b"NNNK\x08K\x01K\x3ftb.",
        b"cnumpy\ndtype\n" + _u("f4") + b"\x89\x88\x87R(K\x03" + _u("<")
        + b"}NNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb.",
        b"K\x01)R.",  # A call of an integer.
        b"ca\nB\nK\x01R.",  # Arguments that are none.
        b"}]K\x01s.",  # A list as a key.
        b"K\x01K\x02\x93.",  # A name of integers.
    ],
)  # fmt: skip
def test_impossible_states_and_calls_are_refused(content):
    with pytest.raises(errors.UserError, match=r"^The data is no pickle, or a damaged one: .*\.$"):
        safe_pickle.load(content)


# Sizes.


def _array(shape, content, dtype=b"f4"):
    parts = b"".join(b"\x8a\x09" + axis.to_bytes(9, "little") for axis in shape)
    return (
        b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
        b"(K\x01(" + parts + b"tcnumpy\ndtype\n" + _u(dtype.decode()) + b"\x89\x88\x87R"
        b"\x89C" + bytes([len(content)]) + content + b"tb."
    )


def test_array_of_the_test_is_well_formed():
    content = np.arange(4, dtype=np.float32)
    found = safe_pickle.load(_array((2, 2), content.tobytes()))
    np.testing.assert_array_equal(found, content.reshape(2, 2))


@pytest.mark.parametrize(
    "shape", [(10**15,), (2, 3), (2**32, 2**32), (0, 2**62), (2**63, 2, 0), (1,) * 40]
)
def test_array_that_claims_another_size_is_refused(shape):
    with pytest.raises(errors.UserError, match="an array in it claims"):
        safe_pickle.load(_array(shape, b"\0" * 16 if len(shape) < 40 else b"\0" * 4))


def test_reconstruct_does_not_allocate_what_it_claims():
    content = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x8a\x07" + b"\xff" * 6
        + b"\x00\x85C\x01b\x87R."
    )  # fmt: skip
    assert safe_pickle.load(content).size == 0


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04B\xff\xff\xff\x7fabc.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**50) + b"abc.",
        b"\x80\x05\x96" + struct.pack("<Q", 2**50) + b"abc.",
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc.",
        b"\x80\x02\x8b\xff\xff\xff\x7fabc.",
    ],
)
def test_text_that_claims_petabytes_is_refused(content):
    with pytest.raises(errors.UserError, match="damaged"):
        safe_pickle.load(content)


def test_memo_index_is_no_size():
    assert safe_pickle.load(b"K\x07r\xff\xff\xff\x7f.") == 7


def test_bytearray_of_a_number_is_not_made():
    content = b"cbuiltins\nbytearray\n\x8a\x07" + b"\xff" * 6 + b"\x00\x85R."
    assert isinstance(safe_pickle.load(content), pickle_values.Placeholder)


def test_copies_of_copies_are_bounded():
    # A list of 100,000 that list() copies 20,000 times, all kept: 16 GB in Python's unpickler.
    numbers = b"](" + b"K\x01" * 100_000 + b"eq\x00"
    copies = b"](" + b"cbuiltins\nlist\nh\x00\x85R" * 20_000 + b"e."
    with pytest.raises(errors.UserError, match="far more memory than it has content"):
        safe_pickle.load(numbers + copies)


@pytest.mark.parametrize(
    "content",
    [
        b"(" + b"]" * 50_000 + b"l.",
        b"(" + b"}" * 50_000 + b"l.",
        b"(" + b"\x8f" * 10_000 + b"l.",
        b"(" * 50_000 + b".",
        b"K\x01" + b"\x85" * 50_000 + b".",
        b"(" + b"(d" * 50_000 + b"l.",
        b"(" + b"(K\x01\x91" * 10_000 + b"l.",
        b"(" + b"ca\nB\n" * 10_000 + b"l.",
        b"ca\nB\nq\x000(" + b"h\x00)R" * 10_000 + b"l.",
        b"ccollections\nOrderedDict\nq\x000(" + b"h\x00)R" * 50_000 + b"l.",
    ],
)
def test_objects_from_next_to_no_bytes_are_bounded(content):
    with pytest.raises(errors.UserError, match="far more memory than it has content"):
        safe_pickle.load(b"\x80\x04" + content)


def test_nested_tuples_as_keys_do_not_hang():
    # t = (t, t) forty times over: Python's hash visits 2^40 parts.
    nested = b"K\x01q\x000" + b"h\x00h\x00\x86q\x000" * 40
    for use in (b"}h\x00K\x01s.", b"\x8f(h\x00\x90.", b"(h\x00\x91."):
        with pytest.raises(errors.UserError, match="too many parts"):
            safe_pickle.load(b"\x80\x04" + nested + use)
    assert len(repr(safe_pickle.load(nested + b"ca\nB\nh\x00\x85R."))) < 100


def test_deep_nesting_neither_recurses_nor_crashes():
    found = safe_pickle.load(b"]" * 10_000 + b"a" * 9_999 + b".")
    assert len(found) == 1
    calls = safe_pickle.load(b"ca\nB\n" + b")R" * 4_000 + b".")
    assert repr(calls) == "<a result(...), not called>"


def test_integer_keys_that_collide_are_refused():
    huge = (2**61 - 1) << 70
    with pytest.raises(errors.UserError, match="more than 64 bits"):
        safe_pickle.load(pickle.dumps({huge: 1}))


# Damage.


def test_every_truncation_is_refused_in_one_line():
    content = pickle.dumps({"a": [np.arange(5.0), Bomb(os.getpid), "text", 1.5]}, 4)
    for size in range(len(content)):
        with pytest.raises(errors.UserError) as caught:
            safe_pickle.load(content[:size])
        assert "\n" not in str(caught.value)
        assert "damaged" in str(caught.value)


@pytest.mark.filterwarnings("ignore:invalid escape")
def test_random_damage_never_escapes_as_another_error():
    content = pickle.dumps(
        {"a": [np.arange(5.0), np.float32(1), Bomb(os.getpid), OrderedDict(x=1)], "b": {1, 2}}, 2
    )
    generator = np.random.default_rng(0)
    for _ in range(3000):
        damaged = bytearray(content)
        for _ in range(generator.integers(1, 4)):
            damaged[generator.integers(len(damaged))] = generator.integers(256)
        try:
            safe_pickle.load(bytes(damaged))
        except errors.UserError:
            pass


@pytest.mark.filterwarnings("ignore:invalid escape")
def test_random_instructions_never_escape_as_another_error():
    codes = [operation.code.encode("latin-1") for operation in pickletools.opcodes]
    generator = np.random.default_rng(1)
    pieces = [
        *codes,
        b"cnumpy\ndtype\n",
        b"cnumpy\nndarray\n",
        _u("f4"),
        b"K\x01",
        b")",
        b"}",
        b"(",
    ]
    for _ in range(5000):
        picked = generator.integers(len(pieces), size=generator.integers(1, 30))
        try:
            safe_pickle.load(b"".join(pieces[index] for index in picked) + b".")
        except errors.UserError:
            pass


def test_missing_file_and_text_file_are_refused(tmp_path):
    with pytest.raises(errors.UserError, match="Cannot read .*none.pkl: No such file"):
        safe_pickle.load(tmp_path / "none.pkl")
    (tmp_path / "text.pkl").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d\n"
    )
    with pytest.raises(errors.UserError, match="text.pkl is no pickle"):
        safe_pickle.load(tmp_path / "text.pkl")


def test_listed_is_short_and_printable():
    assert safe_pickle.listed(["a.b"]) == "a.b"
    many = safe_pickle.listed([f"m.{index}" for index in range(9)])
    assert many == "m.0, m.1, m.2, m.3, m.4, m.5 and 3 more"
    assert "\n" not in safe_pickle.listed(["a\n\x1b[31m.b" + "x" * 500])
    assert len(safe_pickle.listed(["x" * 500])) <= 80
