// Boxes of gather and scatter as rows: where each box begins whose inner dimensions lie densely on both sides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "src/backends/cpu/launch/box_call.h"

namespace weft::cpu {

// Boxes that lie inside or outside as a whole. A box is `pieces` rows of `run` elements; a piece of one box and another piece of
// another box share no place, and the same piece of two boxes shares all of its places or none.
struct BoxRows {
  int64_t boxes = 1, pieces = 1, run = 1;
  // So many equal parts of the boxes, one after another, share no place; `apart`: no two boxes do.
  int64_t regions = 1;
  bool apart = false;
  int64_t step = 0;                              // elements of the boxes tensor from box to box
  int64_t index_step = 0;                        // of an index tensor
  bool held = false;                             // boxes are moved inside
  absl::InlinedVector<BoxCall::Along, 4> batch;  // the boxes' dimensions
  absl::InlinedVector<BoxCall::Along, 4> outer;  // the pieces' dimensions
  absl::InlinedVector<BoxCall::Component, 4> corner;

  // Elements of the operand and of the boxes tensor that lie before piece `p`.
  struct Piece {
    int64_t operand = 0, box = 0;
  };
  Piece PieceAt(int64_t p) const;
  // The element at which the boxes of a region may begin, and how many elements from there on they may reach.
  int64_t RegionAt(int64_t region) const { return BaseOf(region * (boxes / regions)); }
  int64_t RegionElements() const;
  // Where box `n` would begin if its numbers were 0.
  int64_t BaseOf(int64_t n) const;
  // Writes where boxes [begin, begin + count) begin in the operand; negative: outside.
  void Find(std::span<void* const> tensors, DType index_type, int64_t begin, int64_t count, int64_t* to) const;

  // The places that boxes can have: multiples of `unit` elements, `rows` of them.
  struct Places {
    int64_t unit = 1, rows = 1;
  };
  Places PlacesOf() const;
};
// Returns nothing where boxes are no such rows. `held`: boxes are held inside, as gather does.
std::optional<BoxRows> RowsOf(const BoxCall& call, bool held);

// A scatter that sorts its updates by the rows of the result that they name: it needs no memory as large as the result, reads each
// of the rows once, and is dealt to threads by rows.
struct RowSort {
  static constexpr int64_t kMostParts = 16;

  BoxRows::Places places;  // a box that lies outside counts as row `places.rows`
  int64_t boxes = 0;
  int shift = 0;  // row r is in bucket r >> shift
  int64_t buckets = 1;
  int64_t parts = 1;  // of the boxes, which are counted apart

  int64_t space_bytes() const { return 16 * boxes + 4 * parts * buckets; }
};
// Returns nothing where rows or boxes are too many for 32 bits.
std::optional<RowSort> SortOf(const BoxRows& rows);

}  // namespace weft::cpu
