// Outlines are kept of programs, for comparison: see reasons.h.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "src/compiler/reasons.h"
#include "src/ir/code.h"
#include "src/ir/op_def.h"
#include "src/ops/registry.h"

namespace weft::compiler {
namespace {

// Two words a step. The steps of one hash wait for each other, those of two hashes do not.
constexpr uint64_t kSeed = 0x243F6A8885A308D3u, kOther = 0x9E3779B97F4A7C15u;
uint64_t Mixed(uint64_t hash, uint64_t x, uint64_t y = 0) {
  const auto product = static_cast<unsigned __int128>(hash ^ x) * (y ^ kOther);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ y;
}

constexpr size_t kWord = sizeof(uint64_t), kFour = 4 * kWord;
uint64_t WordAt(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Takes fewer bytes than a word has.
[[gnu::noinline]] uint64_t HashOfFew(std::string_view bytes) {
  char word[kWord] = {};
  std::ranges::copy(bytes, word);
  return Mixed(kSeed + bytes.size(), WordAt(word));
}

// The lesser of the two, without a branch.
constexpr size_t AtMost(size_t count, size_t most) {
  const auto over = static_cast<int64_t>(count - most);
  return most + static_cast<size_t>(over & (over >> 63));
}

// Hashes at most four words, and of more the last four. Most nodes have few bytes: a call of Checksum64 would take longer than it
// hashes, and so would a branch that goes by their number, which no processor guesses. So four words are read in any case, some of
// them twice where there are fewer, in two steps that do not wait for each other.
inline uint64_t HashOfShort(const char* end, size_t count) {
  if (count < kWord) return HashOfFew({end - count, count});
  const size_t two = AtMost(count, 2 * kWord);
  const char* const begin = end - AtMost(count, kFour);
  return Mixed(kSeed + count, WordAt(begin), WordAt(begin + two - kWord)) ^
         Mixed(kOther, WordAt(end - two), WordAt(end - kWord));
}

// Adds what stands before the last four words.
uint64_t HashOfLong(const char* at, size_t count, uint64_t hash) {
  for (; count > kFour; count -= kFour, at += kFour)
    hash = Mixed(Mixed(hash, WordAt(at), WordAt(at + kWord)), WordAt(at + 2 * kWord), WordAt(at + 3 * kWord));
  return hash;
}

uint64_t HashOf(std::string_view bytes) {
  return HashOfLong(bytes.data(), bytes.size(), HashOfShort(bytes.data() + bytes.size(), bytes.size()));
}

uint64_t StructureOf(const ir::OpDef& op, uint64_t operands, uint64_t results) {
  return Mixed(kSeed, reinterpret_cast<uintptr_t>(&op), operands << 32 | results);
}

// There is one object for all functions that compute the same.
uint64_t WholeOf(const ir::Node& node, std::string* scratch) {
  scratch->clear();
  ir::CodeWriter(scratch, ir::CodeWriter::Functions::kByAddress).Node(node);
  return HashOf(*scratch);
}

// An outline spells a reference as the value's node and result, or as an argument, or as nothing.
constexpr uint64_t kAbsent = 0;
constexpr uint64_t OfValue(uint64_t node, uint64_t result) { return 2 + (node << 32 | result << 1); }
constexpr uint64_t OfArgument(uint64_t argument) { return 1 + (argument << 1); }

// The place of each of a trace's nodes in the order of recording, which is that of their ids, where ids have gaps.
std::vector<uint32_t> PlacesOf(const PassedNodes& passed) {
  const std::span<const PassedNode> nodes(passed.nodes);
  const size_t count = nodes.size() - 1;
  const uint64_t first = passed.least_id, last = passed.greatest_id;
  std::vector<uint32_t> places(count);
  // A step's ids have few gaps: each gets a slot of its own.
  constexpr uint64_t kMostGaps = 8;
  if (last - first >= kMostGaps * count) {
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), uint32_t{0});
    std::ranges::sort(order, {}, [&](uint32_t i) { return nodes[i].id; });
    for (uint32_t place = 0; place < count; ++place) places[order[place]] = place;
    return places;
  }
  std::vector<uint32_t> slots(last - first + 1);  // first 1 where there is a node, then how many stand before
  for (size_t i = 0; i < count; ++i) {
    places[i] = static_cast<uint32_t>(nodes[i].id - first);
    slots[places[i]] = 1;
  }
  uint32_t before = 0;
  for (uint32_t& slot : slots) before += std::exchange(slot, before);
  for (uint32_t& place : places) place = slots[place];
  return places;
}

// Writes an outline in two passes: over the trace's nodes, whose bytes lie one behind the other, then over the outline's, whose operands
// do. Either reads in order what is large.
class OutlineWriter {
 public:
  OutlineWriter(const Trace& trace, std::string_view canonical, const PassedNodes& passed)
      : trace_(trace),
        canonical_(canonical),
        passed_(passed),
        counts_(passed.nodes.size()),
        values_(trace.values + 1),  // a node may have none
        arguments_(trace.arguments.size(), Difference::kNone) {}

  Outline Run() {
    const size_t count = passed_.nodes.size() - 1;
    outline_.hashes.resize(count);
    outline_.nodes.resize(count);
    if (passed_.greatest_id - passed_.least_id + 1 == count) {
      Nodes([&, first = passed_.least_id](size_t i) { return static_cast<uint32_t>(passed_.nodes[i].id - first); });
    } else {
      Nodes([places = PlacesOf(passed_)](size_t i) { return places[i]; });
    }
    Operands();
    for (const Trace::Reference output : trace_.outputs) {
      if (output == Trace::kAbsent || Trace::IsArgument(output)) continue;
      outline_.outputs.push_back(values_[Trace::IndexOf(output)]);
    }
    return std::move(outline_);
  }

 private:
  // Some nodes at a time, so that those with many bytes, which no branch guesses, are near when they are hashed to their end.
  template <typename PlaceOf>
  void Nodes(const PlaceOf& place_of) {
    constexpr size_t kSome = 64;
    const size_t count = outline_.nodes.size();
    for (size_t i = 0; i < count; i += kSome) SomeNodes<kSome>(i, std::min(count, i + kSome), place_of);
  }

  template <size_t kSome, typename PlaceOf>
  void SomeNodes(size_t begin, size_t end, const PlaceOf& place_of) {
    const std::span<const PassedNode> nodes(passed_.nodes);
    const std::span<Outline::Node> to(outline_.nodes);
    const std::span<Outline::Hashes> hashes(outline_.hashes);
    const std::span<uint64_t> values(values_);
    const std::span<uint32_t> counts(counts_);
    const char* const bytes_of_all = canonical_.data();
    std::array<uint32_t, kSome> left;  // places of those that are hashed in more than one step
    size_t left_count = 0, moved = 0;
    uint64_t sum = 0;
    for (size_t i = begin; i < end; ++i) {
      const PassedNode &node = nodes[i], &next = nodes[i + 1];
      const uint32_t place = place_of(i), operands = next.first_operand - node.first_operand;
      const uint32_t results = next.first_value - node.first_value, bytes = node.bytes.end - node.bytes.begin;
      const uint64_t structure = StructureOf(*node.op, operands, results);
      hashes[place] = {structure, HashOfShort(bytes_of_all + node.bytes.end, bytes)};
      sum += structure * (2 * uint64_t{place} + 1);
      moved |= place ^ i;
      Outline::Node& out = to[place];
      out.at = node.at;
      out.traced = static_cast<uint32_t>(i);
      out.first_operand = node.first_operand;  // of the trace's, till Operands
      out.bytes = node.bytes;
      counts[place] = operands;
      values[node.first_value] = OfValue(place, 0);
      for (uint32_t k = 1; k < results; ++k) values[node.first_value + k] = OfValue(place, k);
      left[left_count] = place;
      left_count += bytes - 1 >= kFour ? 1 : 0;  // none: a function's
    }
    outline_.structure += sum;
    moved_ |= moved;
    for (const uint32_t place : std::span(left).first(left_count)) {
      const Outline::Node& node = to[place];
      uint64_t& whole = hashes[place].whole;
      const size_t bytes = node.bytes.end - node.bytes.begin;
      whole = bytes > 0 ? HashOfLong(bytes_of_all + node.bytes.begin, bytes, whole)
                        : WholeOf(*trace_.nodes[node.traced], &scratch_);
    }
  }

  // Spells the references, which are copied first where nodes are not where the trace has them.
  void Operands() {
    std::vector<Trace::Reference> copied;
    if (moved_ != 0) copied = MovedOperands();
    const std::span<const Trace::Reference> from(moved_ != 0 ? copied : trace_.operands);
    outline_.operands.resize(trace_.operands.size());
    const std::span<uint64_t> to(outline_.operands);
    uint64_t structure = outline_.structure;
    for (uint32_t i = 0; i < to.size(); ++i) {
      const uint64_t said = Spelled(from[i], i);
      to[i] = said;
      structure += Mixed(kSeed, said, i);
    }
    outline_.structure = structure;
  }

  // Two at a time, since most nodes have so many or fewer.
  std::vector<Trace::Reference> MovedOperands() {
    const std::span<const Trace::Reference> from(trace_.operands);
    std::vector<Trace::Reference> to(from.size() + 2);
    if (from.empty()) return to;
    const std::span<const uint32_t> counts(counts_);
    const auto at = [&](size_t i) { return from[std::min(i, from.size() - 1)]; };
    uint32_t end = 0, place = 0;
    for (Outline::Node& node : outline_.nodes) {
      const uint32_t count = counts[place++], first = std::exchange(node.first_operand, end);
      to[end] = at(first);
      to[end + 1] = at(first + 1);
      for (uint32_t i = 2; i < count; ++i) to[end + i] = from[first + i];
      end += count;
    }
    return to;
  }

  // A reference as an outline spells it, which stands at `place` in its operands.
  uint64_t Spelled(Trace::Reference reference, uint32_t place) {
    if (reference == Trace::kAbsent) return kAbsent;
    const uint32_t index = Trace::IndexOf(reference);
    if (!Trace::IsArgument(reference)) return values_[index];
    uint32_t& at = arguments_[index];
    if (at == Difference::kNone) at = Argument(index, place);
    return OfArgument(at);
  }

  uint32_t Argument(uint32_t index, uint32_t place) {
    const Trace::Argument& is = trace_.arguments[index];
    const auto user = std::prev(std::ranges::upper_bound(outline_.nodes, place, {}, &Outline::Node::first_operand));
    scratch_.clear();
    ir::CodeWriter(&scratch_).Type(is.type());
    outline_.arguments.push_back({Mixed(HashOf(scratch_), is.words), index,
                                  static_cast<uint32_t>(user - outline_.nodes.begin()), place - user->first_operand,
                                  is.donated_to >= 0});
    return static_cast<uint32_t>(outline_.arguments.size() - 1);
  }

  const Trace& trace_;
  const std::string_view canonical_;
  const PassedNodes& passed_;
  size_t moved_ = 0;                 // not 0 where a node is not where the trace has it
  std::vector<uint32_t> counts_;     // of operands of each node of the outline
  std::vector<uint64_t> values_;     // the trace's, as an outline spells them
  std::vector<uint32_t> arguments_;  // the trace's among the outline's
  std::string scratch_;
  Outline outline_;
};

}  // namespace

Outline OutlineOf(const Trace& trace, std::string_view canonical, const PassedNodes& passed) {
  return OutlineWriter(trace, canonical, passed).Run();
}

uint64_t ShapeOf(const Outline& outline, std::span<const ir::Node* const> nodes) {
  uint64_t hash = kSeed;
  for (size_t i = 0; i < outline.nodes.size(); ++i) {
    const ir::Node& node = *nodes[outline.nodes[i].traced];
    hash = Mixed(hash, HashOf(node.op().name), node.results().size());
    for (const uint64_t operand : outline.OperandsOf(i)) hash = Mixed(hash, operand);
  }
  return std::max<uint64_t>(hash, 1);
}

// --- Comparing -----------------------------------------------------------------------------------------------------------

namespace {

constexpr int kMostEdits = 64;

// Which node of `before` each node of `now` is, kNone where it is new; nothing if there are more than kMostEdits others. Myers'
// greedy algorithm on what both do not begin and end with.
std::optional<std::vector<uint32_t>> Align(const Outline& before, const Outline& now) {
  const auto n = static_cast<int>(before.nodes.size()), m = static_cast<int>(now.nodes.size());
  if (std::abs(n - m) > kMostEdits) return std::nullopt;
  const auto same = [&](int i, int j) { return before.hashes[i].structure == now.hashes[j].structure; };
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
  std::vector<uint8_t> changed(now.nodes.size());
  size_t count = 0;
  for (size_t i = 0; i < changed.size(); ++i) count += changed[i] = now.hashes[i].whole != before.hashes[i].whole;
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
      if (changed[i] == 0) continue;
      const bool caused = std::ranges::any_of(now.OperandsOf(i), [&](uint64_t operand) {
        return operand != 0 && (operand & 1) == 0 && changed[(operand - 2) >> 32] != 0;
      });
      if (caused && found.node != Difference::kNone) continue;
      found.node = found.node_before = i;
      if (!caused) break;
    }
    found.reason = is_constant(now.hashes[found.node].structure) ? Reason::kConstant : Reason::kAttribute;
    found.at = now.nodes[found.node].at;
    found.others = count - 1;
    return found;
  }
  const auto sorted = [](std::vector<uint64_t> values) {
    std::ranges::sort(values);
    return values;
  };
  const std::vector<uint64_t> outputs = sorted(now.outputs), outputs_before = sorted(before.outputs);
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
  if (output(outputs, outputs_before, &found.node, now)) return found;
  if (output(outputs_before, outputs, &found.node_before, before)) return found;
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
