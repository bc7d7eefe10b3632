// See pieces.h.
#include "src/lazy/value/pieces.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace weft::lazy {

std::vector<Piece> PiecesOf(const Placement& source, const Placement& target, const Dims& dims) {
  const std::span<Device* const> from = source.mesh().holders(), to = target.mesh().holders();
  std::vector<Piece> pieces;
  for (size_t i = 0; i < to.size(); ++i) {
    const ir::Box wanted = target.BoxOf(dims, i);
    const auto has = [&](size_t j, bool all) {
      const ir::Box part = source.BoxOf(dims, j);
      return all ? part == wanted : Common(part, wanted) == wanted;
    };
    std::optional<size_t> best;
    for (size_t j = 0; j < from.size(); ++j) {
      if (!has(j, false)) continue;
      // Another of those alike for each, so that one device need not send to all.
      const auto rank = [&](size_t at) {
        return std::tuple(from[at] != to[i], !has(at, true), (at + i) % from.size());
      };
      if (!best || rank(j) < rank(*best)) best = j;
    }
    if (best) {
      pieces.push_back({*best, i, wanted, nullptr});
      continue;
    }
    const size_t first = pieces.size();
    for (size_t j = 0; j < from.size(); ++j) {
      if (!source.IsFirst(j)) continue;
      const ir::Box part = source.BoxOf(dims, j);
      Piece piece = {j, i, Common(part, wanted), nullptr};
      if (CountOf(piece.box.sizes) == 0) continue;
      for (size_t k = 0; k < from.size(); ++k) {
        if (from[k] == to[i] && source.BoxOf(dims, k) == part) piece.from = k;
      }
      pieces.push_back(std::move(piece));
    }
    std::ranges::sort(pieces.begin() + static_cast<std::ptrdiff_t>(first), pieces.end(), {},
                      [](const Piece& piece) { return piece.box.starts; });
  }
  return pieces;
}

}  // namespace weft::lazy
