"""A checksum of a message's bytes, as sharp as crc32 and several times faster. Imports numpy only.

zlib.crc32 passes a byte after another through one register: 10 to 35 ms for the 34 MB of a 3x2048
policy in fp32, four times between learner and actor. Sums of whole machine words run at the speed
of memory, and crc32 is left with the sums.
"""

import zlib

import numpy as np

_WORD = np.dtype("<u8")
_ROW_WORDS = 2048  # 16 KiB: a 34 MB message has as many rows as columns.
_BLOCK_ROWS = 32  # Half a MiB, which stays in the cache between the two sums.


def checksum(data: np.ndarray) -> int:
    """Returns a 32-bit checksum.

    The bytes are laid out as a table of 64-bit words, 2048 in a row, and added up (modulo 2^64)
    along every row and every column; crc32 is taken of the sums and of the bytes that fill no
    whole row. Damage passes crc32's own test, one in 2^32, or leaves all sums as they were. The
    latter needs at least four wrong words in two rows and two columns that cancel each other:
    flipped bits, anything wrong within 16 KiB, moved or swapped blocks, and a wrong length never
    do (blocks of equal sums in every row excepted, which random data does not have).

    Args:
      data: uint8 [bytes], contiguous.

    Returns:
      0 to 2^32 - 1.
    """
    row_bytes = _ROW_WORDS * _WORD.itemsize
    rows = data.size // row_bytes
    crc = zlib.crc32(data.size.to_bytes(8, "little"))
    if rows:
        words = data[: rows * row_bytes].view(_WORD).reshape(rows, _ROW_WORDS)
        row_sums = np.empty(rows, np.uint64)
        column_sums = np.zeros(_ROW_WORDS, np.uint64)
        for start in range(0, rows, _BLOCK_ROWS):
            block = words[start : start + _BLOCK_ROWS]
            block.sum(axis=1, dtype=np.uint64, out=row_sums[start : start + _BLOCK_ROWS])
            column_sums += block.sum(axis=0, dtype=np.uint64)
        crc = zlib.crc32(column_sums.astype(_WORD), zlib.crc32(row_sums.astype(_WORD), crc))
    return zlib.crc32(data[rows * row_bytes :], crc)
