"""A checksum of a message's bytes, as sharp as crc32 and several times faster. Imports numpy only.

zlib.crc32 passes one byte after another through one register. The 34 MB of a 3x2048 policy in fp32
take it 10 to 35 ms, four times between learner and actor. Sums of whole machine words run at the
speed of memory, and only these sums then go through crc32.
"""

import zlib

import numpy as np

_WORD = np.dtype("<u8")
_ROW_WORDS = 2048  # 16 KiB: a 34 MB message has as many rows as columns.
_BLOCK_ROWS = 32  # Half a MiB: the block stays in the cache between the two sums.


def checksum(data: np.ndarray) -> int:
    """Returns a 32-bit checksum.

    The bytes form a table of 64-bit words, 2048 in a row. The words are added up (modulo 2^64)
    along every row and every column. The result is crc32 of these sums and of the bytes after the
    last whole row.

    Damage goes unnoticed in two cases:
    - The sums change, but crc32 misses it: one case in 2^32.
    - The sums stay as they were. This needs at least four wrong words, in two rows and two columns,
      that cancel each other. Flipped bits, any damage within 16 KiB and a wrong length never do.
      Nor do moved or swapped blocks, unless their rows have equal sums, as random data never has.

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
        crc = zlib.crc32(row_sums.astype(_WORD).data, crc)
        crc = zlib.crc32(column_sums.astype(_WORD).data, crc)
    return zlib.crc32(data[rows * row_bytes :].data, crc)
