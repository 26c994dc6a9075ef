"""How blocks that share long rows keep their parts of them in shared memory, several at a time.

The memory is a ring of places for pieces of a part. The copy engine fills them in order; a place
is free again when the last pass over its row has read it.
"""

from dataclasses import dataclass

WARP = 32

MULTIPROCESSOR_BYTES = 228 << 10
"""Shared memory of a multiprocessor (CUDA C++ guide, compute capability 9.0)."""

OWN_BYTES = 2048  # own: what the driver keeps of a block's, barriers, and room to join results

MOST_PLACES = 64  # own: each has a barrier
MOST_BEHIND = 4  # own: by then the other blocks' results have come


@dataclass(frozen=True, slots=True)
class Ring:
    """Places of one block.

    Attributes:
        piece: elements that are copied at a time.
        pieces: of a part.
        places: for pieces.
        bytes: of all places.
    """

    piece: int
    pieces: int
    places: int
    bytes: int

    def behind(self, passes: int) -> int:
        """Return by how many rows each pass follows the one before it.

        While the other blocks tell what they have found of a row, a block goes on with the next
        ones. The rows on the way take at most half the places, if they need not take more for one
        row between two passes: the other places are for what is being copied.
        """
        held = [n for n in range(MOST_BEHIND + 1) if self.held(passes, n) <= self.places]
        return max(
            (n for n in held if n <= 1 or 2 * self.held(passes, n) <= self.places), default=0
        )

    def held(self, passes: int, behind: int) -> int:
        """Return the places of the rows that have been begun and not ended."""
        return self.pieces * ((passes - 1) * behind + 1)


def part_of(columns: int, parts: int, vec: int) -> int:
    """Return the elements of a row that each of its parts has, in whole accesses of a warp."""
    access = WARP * vec
    return -(-columns // (parts * access)) * access


def ring(*, part: int, piece: int, kept: int, min_blocks: int) -> Ring:
    """Return as many places as there is room for.

    Args:
        part: elements of a row that a block takes.
        piece: of those that all its threads read at a time.
        kept: float32 values that are kept of each element.
        min_blocks: blocks of a multiprocessor.
    """
    room = MULTIPROCESSOR_BYTES // min_blocks - OWN_BYTES
    each = 4 * piece * kept
    places = min(MOST_PLACES, room // each)
    return Ring(piece, -(-part // piece), places, places * each)
