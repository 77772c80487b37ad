// What Python calls of the geometry of moves. Moves are flat integers, and no
// function takes the GIL or keeps anything between two calls.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_FUNCTIONS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_FUNCTIONS_H_

#include <stddef.h>
#include <stdint.h>

extern "C" {

// A mapping is `count` integers: the numbers of factors and of replicas, the
// first tile, (extent, block, stride) of each factor, (count, stride) of each
// replica. A move is: the number of dimensions, the iteration space, then for
// the source and for the destination: the mapping, the offset, and the strides
// (moves/native.py).
//
// Functions return -1 if an argument is not of this form, -2 if the host is out
// of memory.

// Counts the elements of a mapping on each of `tiles` tiles.
int64_t ipu_elements(const int64_t* mapping, size_t count, size_t tiles,
                     int64_t* elements);

// Counts what a move of elements of `item_bytes` makes `tiles` tiles receive,
// send and keep, in bytes: see CountMovedElements. Writes the fields of its
// FullestEnds to `ends` [13].
int64_t ipu_moved_bytes(const int64_t* move, size_t count, int once,
                        int64_t item_bytes, size_t tiles, int64_t* bytes,
                        int64_t* ends);

// Counts a move's segments: see CountSegments. Writes the fields of the
// source's SegmentCounts to `figures` [16], then those of the destination's.
int64_t ipu_segments(const int64_t* move, size_t count, int64_t item_bytes,
                     int64_t* figures);

// Counts the intervals of memory at a move's source whose elements are at one
// place at its destination, whichever of them sends: see
// CountContiguousDestinations. Writes its fields to `figures` [2].
int64_t ipu_contiguous_destinations(const int64_t* move, size_t count,
                                    int64_t elements, int64_t grain,
                                    int64_t* figures);

}  // extern "C"

#endif  // JAXLIB_IPU_RUNTIME_MOVES_FUNCTIONS_H_
