// Outlines are kept of programs, for comparison: see reasons.h.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "serialization/checksum.h"
#include "src/compiler/reasons.h"
#include "src/ir/code.h"
#include "src/ir/op_def.h"
#include "src/ops/registry.h"

namespace weft::compiler {
namespace {

// Two words a step. The steps of one hash wait for each other, those of two hashes do not.
class Hash {
 public:
  explicit Hash(uint64_t seed = 0x243F6A8885A308D3u) : hash_(seed) {}
  void Add(uint64_t x, uint64_t y) {
    const auto product = static_cast<unsigned __int128>(hash_ ^ x) * (y ^ 0x9E3779B97F4A7C15u);
    hash_ = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ y;
  }
  void Add(uint64_t x) { Add(x, 0); }
  void Add(std::string_view text) { Add(text.size(), Checksum64(std::as_bytes(std::span(text.data(), text.size())))); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0x243F6A8885A308D3u;
};

uint64_t StructureOf(const ir::OpDef& op, uint64_t operands, uint64_t results) {
  Hash hash;
  hash.Add(reinterpret_cast<uintptr_t>(&op), operands << 32 | results);
  return hash.value();
}

// There is one object for all functions that compute the same.
uint64_t WholeOf(const ir::Node& node, std::string* scratch) {
  scratch->clear();
  ir::CodeWriter(scratch, ir::CodeWriter::Functions::kByAddress).Node(node);
  return Checksum64(std::as_bytes(std::span(*scratch)));
}

// An outline spells a reference as the value's node and result, or as an argument, or as nothing.
constexpr uint64_t kAbsent = 0;
constexpr uint64_t OfValue(uint64_t node, uint64_t result) { return 2 + (node << 32 | result << 1); }
constexpr uint64_t OfArgument(uint64_t argument) { return 1 + (argument << 1); }

// Nodes lie far apart in memory, so the one loop over them asks for so many ahead, and reads two of their four cache lines: that of
// operation and id, and that of the position. The rest stands in the canonical form, which lies in one piece.
constexpr size_t kAskAhead = 24;
void AskFor(const ir::Node* node) {
  constexpr size_t kIdAt = 40, kPositionFromEnd = 40;
  const char* const begin = reinterpret_cast<const char*>(node);
  __builtin_prefetch(begin + kIdAt);
  __builtin_prefetch(begin + sizeof(ir::Node) - kPositionFromEnd);
}

// How many operands stand behind a node's bytes; of a node that has none of its own, or many, the node says it.
size_t OperandsOf(const ir::Node& node, std::string_view canonical, const NodeBytes& bytes) {
  constexpr unsigned char kMostInOneByte = 0x7F;
  const auto count = bytes.end == 0 ? kMostInOneByte + 1 : static_cast<unsigned char>(canonical[bytes.end]);
  return count <= kMostInOneByte ? count : node.operands().size();
}

// The trace's own of a node, by the node's place in it.
struct Place {
  uint64_t id = 0;
  uint32_t first_operand = 0, first_value = 0;
};

// Reads each node once: into the outline, in the trace's order, and into one place more than there are nodes.
std::vector<Place> Look(const Trace& trace, std::string_view canonical, std::span<const NodeBytes> bytes,
                        Outline* outline) {
  const size_t count = trace.nodes.size();
  outline->nodes.resize(count);
  std::vector<Place> places(count + 1);
  std::string scratch;
  const bool one_result = trace.values == count;  // each: a node without any is reached from nowhere
  for (size_t i = 0; i < count; ++i) {
    if (i + kAskAhead < count) AskFor(trace.nodes[i + kAskAhead]);
    const ir::Node& node = *trace.nodes[i];
    const size_t operands = OperandsOf(node, canonical, bytes[i]);
    const size_t results = one_result ? 1 : node.results().size();
    const std::string_view alone = canonical.substr(bytes[i].begin, bytes[i].end - bytes[i].begin);
    outline->nodes[i] = {.structure = StructureOf(node.op(), operands, results),
                         .whole = alone.empty() ? WholeOf(node, &scratch)
                                                : Checksum64(std::as_bytes(std::span(alone.data(), alone.size()))),
                         .at = node.location(),
                         .traced = static_cast<uint32_t>(i),
                         .bytes = bytes[i]};
    places[i].id = node.id();
    places[i + 1].first_operand = places[i].first_operand + static_cast<uint32_t>(operands);
    places[i + 1].first_value = places[i].first_value + static_cast<uint32_t>(results);
  }
  return places;
}

// The places of the trace's nodes in the order of recording, which is that of their ids.
std::vector<uint32_t> OrderOf(std::span<const Place> places) {
  const size_t count = places.size();
  uint64_t first = UINT64_MAX, last = 0;
  bool sorted = true;
  for (const Place& place : places) {
    sorted = sorted && last <= place.id;
    first = std::min(first, place.id), last = std::max(last, place.id);
  }
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), uint32_t{0});
  if (sorted) return order;
  // A step's ids have few gaps: each gets a place of its own.
  constexpr uint64_t kMostGaps = 8;
  if (last - first >= kMostGaps * count) {
    std::ranges::sort(order, {}, [&](uint32_t i) { return places[i].id; });
    return order;
  }
  std::vector<uint32_t> slots(last - first + 1);  // 0: a gap
  for (uint32_t i = 0; i < count; ++i) slots[places[i].id - first] = i + 1;
  auto out = order.begin();
  for (const uint32_t slot : slots) {
    if (slot != 0) *out++ = slot - 1;
  }
  return order;
}

// Puts nodes that stand in the trace's order into that one. In place: memory that is new costs more than the copies.
void Reorder(std::span<const uint32_t> order, std::vector<Outline::Node>* nodes) {
  std::vector<bool> done(order.size());
  for (uint32_t start = 0; start < order.size(); ++start) {
    if (done[start]) continue;
    const Outline::Node first = (*nodes)[start];
    uint32_t at = start;
    for (; order[at] != start; at = order[at]) {
      (*nodes)[at] = (*nodes)[order[at]];
      done[at] = true;
    }
    (*nodes)[at] = first;
    done[at] = true;
  }
}

// The references to the trace's values as an outline spells them.
std::vector<uint64_t> SpelledValues(const Trace& trace, std::span<const Place> places,
                                    std::span<const uint32_t> order) {
  std::vector<uint64_t> said(trace.values);
  for (uint32_t place = 0; place < order.size(); ++place) {
    const uint32_t first = places[order[place]].first_value, end = places[order[place] + 1].first_value;
    for (uint32_t value = first; value < end; ++value) said[value] = OfValue(place, value - first);
  }
  return said;
}
}  // namespace

Outline OutlineOf(const Trace& trace, std::string_view canonical, std::span<const NodeBytes> bytes) {
  Outline outline;
  const std::vector<Place> places = Look(trace, canonical, bytes, &outline);
  const std::vector<uint32_t> order = OrderOf(std::span(places).first(trace.nodes.size()));
  Reorder(order, &outline.nodes);
  const std::vector<uint64_t> values = SpelledValues(trace, places, order);
  std::vector<uint32_t> argument_at(trace.arguments.size(), Difference::kNone);
  outline.operands.resize(trace.operands.size());
  std::string type;
  const auto argument = [&](uint32_t index, uint32_t node, uint32_t operand) {
    uint32_t& at = argument_at[index];
    if (at != Difference::kNone) return OfArgument(at);
    const Trace::Argument& is = trace.arguments[index];
    type.clear();
    ir::CodeWriter(&type).Type(is.type());
    Hash kind(is.words);
    kind.Add(type);
    at = static_cast<uint32_t>(outline.arguments.size());
    outline.arguments.push_back({kind.value(), index, node, operand, is.donated_to >= 0});
    return OfArgument(at);
  };
  uint32_t next = 0;
  for (uint32_t i = 0; i < order.size(); ++i) {
    const uint32_t first = places[order[i]].first_operand, end = places[order[i] + 1].first_operand;
    outline.nodes[i].first_operand = next;
    Hash hash(outline.nodes[i].structure);
    hash.Add(i);
    for (uint32_t k = 0; k < end - first; ++k) {
      const Trace::Reference reference = trace.operands[first + k];
      const uint32_t index = Trace::IndexOf(reference);
      uint64_t said = kAbsent;
      if (reference != Trace::kAbsent) said = Trace::IsArgument(reference) ? argument(index, i, k) : values[index];
      outline.operands[next++] = said;
      hash.Add(said);
    }
    outline.structure += hash.value();
  }
  for (const Trace::Reference output : trace.outputs) {
    if (output == Trace::kAbsent || Trace::IsArgument(output)) continue;
    outline.outputs.push_back(values[Trace::IndexOf(output)]);
  }
  std::ranges::sort(outline.outputs);
  return outline;
}

uint64_t ShapeOf(const Outline& outline, std::span<const ir::Node* const> nodes) {
  Hash hash;
  for (size_t i = 0; i < outline.nodes.size(); ++i) {
    const ir::Node& node = *nodes[outline.nodes[i].traced];
    hash.Add(node.op().name);
    hash.Add(node.results().size());
    for (const uint64_t operand : outline.OperandsOf(i)) hash.Add(operand);
  }
  return std::max<uint64_t>(hash.value(), 1);
}

// --- Comparing -----------------------------------------------------------------------------------------------------------

namespace {

constexpr int kMostEdits = 64;

// Which node of `before` each node of `now` is, kNone where it is new; nothing if there are more than kMostEdits others. Myers'
// greedy algorithm on what both do not begin and end with.
std::optional<std::vector<uint32_t>> Align(const Outline& before, const Outline& now) {
  const auto n = static_cast<int>(before.nodes.size()), m = static_cast<int>(now.nodes.size());
  if (std::abs(n - m) > kMostEdits) return std::nullopt;
  const auto same = [&](int i, int j) { return before.nodes[i].structure == now.nodes[j].structure; };
  int head = 0, tail = 0;
  while (head < std::min(n, m) && same(head, head)) ++head;
  while (tail < std::min(n, m) - head && same(n - 1 - tail, m - 1 - tail)) ++tail;
  std::vector<uint32_t> pairs(m, Difference::kNone);
  for (int i = 0; i < head; ++i) pairs[i] = static_cast<uint32_t>(i);
  for (int i = 0; i < tail; ++i) pairs[m - 1 - i] = static_cast<uint32_t>(n - 1 - i);
  const int height = n - head - tail, width = m - head - tail;
  constexpr int kRow = 2 * kMostEdits + 3, kMiddle = kMostEdits + 1;
  std::vector<int> reached(kRow, 0);
  std::vector<std::vector<int>> rows;  // of each number of edits, before they were made
  const auto downwards = [](const std::vector<int>& row, int d, int k) {
    return k == -d || (k != d && row[kMiddle + k - 1] < row[kMiddle + k + 1]);
  };
  for (int d = 0; d <= kMostEdits; ++d) {
    rows.push_back(reached);
    for (int k = -d; k <= d; k += 2) {
      // x is in `before`, y in `now`; going down takes one that is new.
      int x = d == 0 ? 0 : downwards(rows[d], d, k) ? rows[d][kMiddle + k + 1] : rows[d][kMiddle + k - 1] + 1;
      int y = x - k;
      while (x < height && y < width && y >= 0 && same(head + x, head + y)) ++x, ++y;
      reached[kMiddle + k] = x;
      if (x < height || y < width || x > height || y > width) continue;
      // The way back.
      for (int e = d; e >= 0; --e) {
        const int diagonal = x - y;
        const bool down = e > 0 && downwards(rows[e], e, diagonal);
        const int from = e == 0 ? 0 : diagonal + (down ? 1 : -1);
        const int x0 = e == 0 ? 0 : rows[e][kMiddle + from], y0 = x0 - from;
        const int x1 = e == 0 ? 0 : down ? x0 : x0 + 1;
        for (; x > x1; --x, --y) pairs[head + y - 1] = static_cast<uint32_t>(head + x - 1);
        x = x0, y = e == 0 ? 0 : y0;
      }
      return pairs;
    }
  }
  return std::nullopt;
}

// A comparison collects these candidates; the cause is chosen from them.
struct Pairing {
  const Outline &before, &now;
  std::vector<uint32_t> pairs;  // by node of `now`
  std::vector<uint32_t> after;  // by node of `before`
  // Tells whether an operand of `now` is the same value as one of `before`. Arguments are told by their positions.
  bool SameOperand(uint64_t was, uint64_t is) const {
    if ((was & 1) != 0 || (is & 1) != 0 || was == 0 || is == 0) return was == is;
    const uint64_t node = (is - 2) >> 32;
    return pairs[node] == ((was - 2) >> 32) && ((is ^ was) & 0xFFFFFFFF) == 0;
  }
};

Pairing PairUp(const Outline& before, const Outline& now, std::vector<uint32_t> pairs) {
  Pairing pairing{before, now, std::move(pairs), std::vector<uint32_t>(before.nodes.size(), Difference::kNone)};
  for (uint32_t i = 0; i < pairing.pairs.size(); ++i) {
    if (pairing.pairs[i] != Difference::kNone) pairing.after[pairing.pairs[i]] = i;
  }
  return pairing;
}

// Programs of equal structure: arguments, nodes, outputs, what may be taken over.
Difference CauseInEqual(const Outline& before, const Outline& now, bool (*is_constant)(uint64_t structure)) {
  Difference found;
  found.nodes = now.nodes.size();
  std::vector<bool> changed(now.nodes.size());
  size_t count = 0;
  for (uint32_t i = 0; i < now.nodes.size(); ++i) {
    changed[i] = now.nodes[i].whole != before.nodes[i].whole;
    count += changed[i] ? 1 : 0;
  }
  for (uint32_t i = 0; i < now.arguments.size(); ++i) {
    if (now.arguments[i].kind == before.arguments[i].kind) continue;
    found.edits += 1;
    if (found.reason == Reason::kArgument) continue;
    found.reason = Reason::kArgument;
    found.argument = found.argument_before = i;
    found.at = now.nodes[now.arguments[i].user].at;
    found.others = count;
  }
  found.edits += count;
  if (found.reason == Reason::kArgument) return found;
  if (count > 0) {
    for (uint32_t i = 0; i < now.nodes.size(); ++i) {
      if (!changed[i]) continue;
      const bool caused = std::ranges::any_of(now.OperandsOf(i), [&](uint64_t operand) {
        return operand != 0 && (operand & 1) == 0 && changed[(operand - 2) >> 32];
      });
      if (caused && found.node != Difference::kNone) continue;
      found.node = found.node_before = i;
      if (!caused) break;
    }
    found.reason = is_constant(now.nodes[found.node].structure) ? Reason::kConstant : Reason::kAttribute;
    found.at = now.nodes[found.node].at;
    found.others = count - 1;
    return found;
  }
  const auto output = [&](const std::vector<uint64_t>& of, const std::vector<uint64_t>& than, uint32_t* node,
                          const Outline& outline) {
    for (const uint64_t one : of) {
      if (std::ranges::binary_search(than, one)) continue;
      *node = static_cast<uint32_t>((one - 2) >> 32);
      found.result = static_cast<uint32_t>(one & 0xFFFFFFFF) / 2 - 1;
      found.at = outline.nodes[*node].at;
      found.reason = Reason::kOutputs;
      ++found.edits;
      return true;
    }
    return false;
  };
  if (output(now.outputs, before.outputs, &found.node, now)) return found;
  if (output(before.outputs, now.outputs, &found.node_before, before)) return found;
  for (uint32_t i = 0; i < now.arguments.size(); ++i) {
    if (now.arguments[i].taken_over == before.arguments[i].taken_over) continue;
    found.reason = Reason::kTakenOver;
    found.argument = found.argument_before = i;
    found.at = now.nodes[now.arguments[i].user].at;
    found.edits += 1;
    return found;
  }
  // Only their order differs, or which result takes over which argument.
  found.reason = Reason::kTakenOver;
  return found;
}

// Programs that do not have the same operations.
Difference CauseInOthers(const Pairing& pairing) {
  Difference found;
  found.reason = Reason::kOperations;
  found.nodes = pairing.now.nodes.size();
  const auto added = static_cast<size_t>(std::ranges::count(pairing.pairs, Difference::kNone));
  const auto gone = static_cast<size_t>(std::ranges::count(pairing.after, Difference::kNone));
  found.edits = added + gone;
  // The first that is new or has another operand.
  uint32_t pending = Difference::kNone;
  for (uint32_t i = 0; i < pairing.pairs.size(); ++i) {
    const uint32_t was = pairing.pairs[i];
    if (was == Difference::kNone) {
      if (found.node == Difference::kNone) found.node = i;
      continue;
    }
    if (gone == 0 || added > 0) continue;  // nothing that was pending is known now
    const auto operands = pairing.now.OperandsOf(i), operands_before = pairing.before.OperandsOf(was);
    for (size_t k = 0; k < operands.size(); ++k) {
      // A value that is gone, where an argument is now.
      const uint64_t before = operands_before[k];
      const bool known = (operands[k] & 1) != 0 && before != 0 && (before & 1) == 0;
      if (known && pending == Difference::kNone && pairing.after[(before - 2) >> 32] == Difference::kNone) {
        pending = i;
        found.argument = static_cast<uint32_t>(operands[k] >> 1);
        found.node_before = static_cast<uint32_t>((before - 2) >> 32);
      }
    }
  }
  if (gone > 0 && added == 0 && pending != Difference::kNone) {
    found.reason = Reason::kPending;
    found.node = pending;
    found.at = pairing.now.nodes[pending].at;
    found.others = gone - 1;
    return found;
  }
  found.argument = found.node_before = Difference::kNone;
  found.others = found.edits > 0 ? found.edits - 1 : 0;
  if (found.node == Difference::kNone) {
    const auto first = std::ranges::find(pairing.after, Difference::kNone);
    if (first != pairing.after.end()) found.node_before = static_cast<uint32_t>(first - pairing.after.begin());
  }
  for (uint32_t i = 0; found.edits == 0 && found.node == Difference::kNone && i < pairing.pairs.size(); ++i) {
    const auto operands = pairing.now.OperandsOf(i), operands_before = pairing.before.OperandsOf(pairing.pairs[i]);
    const auto same = [&](uint64_t is, uint64_t was) { return pairing.SameOperand(was, is); };
    if (!std::ranges::equal(operands, operands_before, same)) found.node = i, found.node_before = pairing.pairs[i];
  }
  if (found.node != Difference::kNone) found.at = pairing.now.nodes[found.node].at;
  if (found.node == Difference::kNone && found.node_before != Difference::kNone)
    found.at = pairing.before.nodes[found.node_before].at;
  return found;
}

}  // namespace

std::optional<Difference> Compare(const Outline& before, const Outline& now) {
  const auto is_constant = [](uint64_t structure) { return structure == StructureOf(ops::kOp_constant, 0, 1); };
  if (before.structure == now.structure && before.nodes.size() == now.nodes.size() &&
      before.arguments.size() == now.arguments.size()) {
    return CauseInEqual(before, now, is_constant);
  }
  std::optional<std::vector<uint32_t>> pairs = Align(before, now);
  if (!pairs) return std::nullopt;
  const Difference found = CauseInOthers(PairUp(before, now, *std::move(pairs)));
  if (2 * found.edits > before.nodes.size() + now.nodes.size()) return std::nullopt;
  return found;
}

}  // namespace weft::compiler
