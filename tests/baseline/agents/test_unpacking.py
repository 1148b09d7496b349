"""Strangers' zips unpack to no more than is allowed, whatever they claim."""

import io
import struct
import tracemalloc
import zipfile

import pytest

from actorQ.core import errors
from baseline.agents import unpacking


def zipped(method=zipfile.ZIP_DEFLATED, **members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    buffer.seek(0)
    return buffer


def test_member_has_at_most_so_many_bytes():
    archive = zipfile.ZipFile(zipped(a=b"x" * 1000))
    assert unpacking.member(archive, "a", 1000, "f.zip") == b"x" * 1000
    with pytest.raises(errors.UserError, match="f.zip claims 1,000 bytes for a: not read"):
        unpacking.member(archive, "a", 999, "f.zip")
    with pytest.raises(KeyError):
        unpacking.member(archive, "b", 999, "f.zip")


def test_member_that_claims_too_little_is_not_unpacked():
    size = (16 << 20) + 12345  # Bytes that occur nowhere else.
    content = zipped(a=bytes(size)).getvalue()
    assert content.count(struct.pack("<I", size)) == 2
    content = content.replace(struct.pack("<I", size), struct.pack("<I", 10))
    archive = zipfile.ZipFile(io.BytesIO(content))
    tracemalloc.start()
    with pytest.raises(zipfile.BadZipFile):
        unpacking.member(archive, "a", 100, "f.zip")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_methods_without_a_bound_are_refused(method):
    file = zipped(method, a=b"x" * 1000)
    with pytest.raises(errors.UserError, match="f.zip packs a in a way that is not read here"):
        unpacking.member(zipfile.ZipFile(file), "a", 1000, "f.zip")
    file.seek(0)
    with pytest.raises(errors.UserError, match="not read here"):
        unpacking.check_nested(file, "inner", 1000, "f.zip")


def test_nested_zips_have_at_most_so_many_bytes_and_parts(monkeypatch):
    file = zipped(a=b"x" * 600, b=b"y" * 400)
    unpacking.check_nested(file, "inner", 1000, "f.zip")
    assert file.tell() == 0
    with pytest.raises(errors.UserError, match="f.zip claims 1,000 bytes for inner: not read"):
        unpacking.check_nested(file, "inner", 999, "f.zip")
    monkeypatch.setattr(unpacking, "MAX_MEMBERS", 1)
    file.seek(0)
    with pytest.raises(errors.UserError, match="f.zip claims over 1 parts of inner: not read"):
        unpacking.check_nested(file, "inner", 1000, "f.zip")


def test_what_is_no_zip_is_no_matter():
    file = io.BytesIO(b"\x80\x02 a pickle")
    unpacking.check_nested(file, "inner", 1, "f.pt")
    assert file.tell() == 0
    with pytest.raises(zipfile.BadZipFile):
        unpacking.check_nested(io.BytesIO(b"PK\x05\x06 damaged"), "inner", 1, "f.pt")
