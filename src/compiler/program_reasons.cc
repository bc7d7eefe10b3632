// Why programs were not in memory, as the cache knows it; and its list of programs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/compiler/canonical.h"
#include "src/compiler/entry_difference.h"
#include "src/compiler/function_difference.h"
#include "src/compiler/program_cache.h"
#include "src/ir/location.h"
#include "src/runtime/json_text.h"

namespace weft::compiler {
namespace {

// The number of programs used last that are compared with one whose structure no program has.
constexpr size_t kLatest = 8;

constexpr Counter CounterOf(Reason reason) {
  return static_cast<Counter>(static_cast<int>(Counter::kMissingFirst) + static_cast<int>(reason));
}
static_assert(CounterOf(Reason::kDropped) == Counter::kMissingDropped);

// "4th"
std::string Ordinal(int64_t n) {
  const int64_t tens = n % 100, ones = n % 10;
  const bool teens = tens >= 11 && tens <= 13;
  return absl::StrCat(n, !teens && ones == 1 ? "st" : !teens && ones == 2 ? "nd" : !teens && ones == 3 ? "rd" : "th");
}

uint64_t NumberOf(ir::Location at) { return uint64_t{at.file} << 32 | at.line; }
ir::Location LocationOf(uint64_t number) {
  return {static_cast<uint32_t>(number >> 32), static_cast<uint32_t>(number)};
}

}  // namespace

void ProgramCache::FindReason(const Trace& trace, Wanted* wanted) {
  auto outline = std::make_shared<const Outline>(
      OutlineOf(trace, std::string_view(canonical_).substr(prefix_.size()), passed_nodes_));
  Difference found;
  found.nodes = outline->nodes.size();
  {
    MutexLock lock(mutex_);
    if (dropped_.contains(wanted->key)) {
      found.reason = Reason::kDropped;
    } else if (std::shared_ptr<const Program> near = NearestTo(*outline, &found); near != nullptr) {
      wanted->outline_near = near->outline;
      wanted->near = std::move(near);
    } else if (config_.other_target) {
      found.reason = Reason::kTarget;
    }
  }
  wanted->outline = std::move(outline);
  wanted->difference = found;
}

void ProgramCache::CountMissing(const Wanted& wanted) const {
  config_.metrics->Add(Counter::kProgramsQueued);
  config_.metrics->Add(CounterOf(wanted.difference.reason));
}

std::shared_ptr<const Program> ProgramCache::NearestTo(const Outline& outline, Difference* difference) {
  using Candidate = const std::shared_ptr<Program>*;
  std::vector<Candidate> equal, latest;
  for (const auto& [key, programs] : programs_) {
    for (const auto& program : programs) {
      if (program->outline == nullptr) continue;
      (program->outline->structure == outline.structure ? equal : latest).push_back(&program);
    }
  }
  std::vector<Candidate>& candidates = equal.empty() ? latest : equal;
  const auto later = [](Candidate a, Candidate b) { return (*a)->last_used > (*b)->last_used; };
  const size_t count = std::min(candidates.size(), kLatest);
  std::ranges::partial_sort(candidates, candidates.begin() + static_cast<ptrdiff_t>(count), later);
  std::shared_ptr<const Program> nearest;
  for (const Candidate candidate : std::span(candidates).first(count)) {
    const std::optional<Difference> found = Compare(*(*candidate)->outline, outline);
    if (!found || (nearest != nullptr && found->edits >= difference->edits)) continue;
    *difference = *found;
    nearest = *candidate;
    if (found->edits <= 1) break;  // none can be nearer, as each that is not equal has an edit
  }
  return nearest;
}

void ProgramCache::KeepOutline(const std::shared_ptr<Program>& program, std::shared_ptr<const Outline> outline) {
  if (outline == nullptr || outline->bytes() > kMostOutlineBytes) return;
  outline_bytes_ += outline->bytes();
  program->outline = std::move(outline);
  while (outline_bytes_ > kMostOutlineBytes) {
    const Program* oldest = nullptr;
    for (const auto& [key, programs] : programs_) {
      for (const auto& other : programs) {
        if (other->outline == nullptr || (oldest != nullptr && other->last_used >= oldest->last_used)) continue;
        oldest = other.get();
      }
    }
    outline_bytes_ -= std::exchange(oldest->outline, nullptr)->bytes();
  }
}

void ProgramCache::FindStoredReason(Wanted* wanted) const {
  if (wanted->outline == nullptr) return;
  const Ref<const ir::Function>& now = wanted->module.functions[0];
  wanted->shape = ShapeOf(*wanted->outline, now->nodes().subspan(now->parameters().size()));
  if (wanted->difference.reason != Reason::kFirst) return;
  constexpr size_t kMost = 3;  // whose target and options may be others
  const auto of_these = [&](const std::string& canonical) { return canonical.starts_with(prefix_); };
  std::vector<std::string> stored = config_.store->OfShape(wanted->shape, kMost);
  std::ranges::stable_partition(stored, of_these);
  if (stored.empty()) return;
  if (!of_these(stored[0])) {
    const std::vector<PartDifference> parts = DifferencesOf(wanted->canonical, stored[0]);
    if (parts.empty() || parts[0].part == "program") return;
    wanted->difference.reason = Reason::kTarget;
    wanted->stored_why = absl::StrCat("an earlier process made a program of these operations for another ",
                                      parts[0].part, ": ", parts[0].there, ", now ", parts[0].here);
    return;
  }
  const auto before = ReadCanonical(std::string_view(stored[0]).substr(prefix_.size()));
  if (!before.ok()) return;
  const auto found = DifferenceOf(*before, now);
  if (!found.ok() || !found->has_value() || (*found)->reason == Reason::kFirst) return;
  wanted->difference.reason = (*found)->reason;
  wanted->difference.at = (*found)->at;
  wanted->stored_why = absl::StrCat((*found)->text, "; compared with what an earlier process left in the disk cache");
}

std::string ProgramCache::Why(const Wanted& wanted) const {
  if (!wanted.stored_why.empty()) return wanted.stored_why;
  if (wanted.near == nullptr) {
    if (wanted.difference.reason == Reason::kDropped) return "memory had let go of it";
    return wanted.difference.reason == Reason::kTarget ? "it is for another target than the machine's" : "";
  }
  const auto form = [&](std::string_view canonical) { return canonical.substr(prefix_.size()); };
  return TextOf(wanted.difference, *wanted.outline_near, form(wanted.near->canonical), *wanted.outline,
                form(wanted.canonical));
}

int64_t ProgramCache::CountAt(const Difference& difference) {
  MutexLock lock(mutex_);
  return ++times_[{static_cast<uint8_t>(difference.reason), NumberOf(difference.at)}];
}

void ProgramCache::Explain(const Wanted& wanted, const std::string& why, const Made& made) {
  const int64_t times = CountAt(wanted.difference);
  if (!config_.explain) return;
  if (wanted.difference.reason == Reason::kFirst) return;
  config_.explain([&] {
    const std::string_view hint = HintOf(wanted.difference.reason);
    return absl::StrCat(made.loaded ? "loaded" : "compiled", " again (", made.nanoseconds / 1'000'000, " ms",
                        times > 1 ? absl::StrCat(", ", Ordinal(times), " time here") : "", "): ", why,
                        hint.empty() ? "" : absl::StrCat(". ", hint));
  });
}

std::string ProgramCache::Summary() {
  struct Row {
    int64_t times = 0, most = 0;
    ir::Location at;
  };
  Row rows[static_cast<size_t>(Reason::kCount)];
  {
    MutexLock lock(mutex_);
    for (const auto& [place, times] : times_) {
      Row& row = rows[place.first];
      row.times += times;
      if (times > row.most) row.most = times, row.at = LocationOf(place.second);
    }
  }
  std::string text;
  for (size_t i = 0; i < std::size(rows); ++i) {
    if (rows[i].times == 0) continue;
    const std::string at = ir::ToString(rows[i].at);
    absl::StrAppend(&text, "  ", NameOf(static_cast<Reason>(i)), ": ", rows[i].times,
                    at.empty() ? "" : absl::StrCat(", of these ", rows[i].most, " at ", at), "\n");
  }
  return text;
}

std::vector<ir::Location> ProgramCache::PositionsOf(const Program& program) {
  MutexLock lock(mutex_);
  if (program.outline == nullptr) return {};
  std::vector<ir::Location> positions(program.outline->nodes.size());
  for (const Outline::Node& node : program.outline->nodes) positions[node.traced] = node.at;
  return positions;
}

std::vector<std::shared_ptr<const Program>> ProgramCache::Programs() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const Program>> all;
  for (const auto& [key, programs] : programs_) all.insert(all.end(), programs.begin(), programs.end());
  return all;
}

std::vector<std::string> ProgramCache::List() {
  std::vector<std::pair<std::shared_ptr<const Program>, std::pair<uint64_t, uint64_t>>> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, programs] : programs_) {
      for (const auto& program : programs) all.push_back({program, {program->last_used, program->runs}});
    }
  }
  std::ranges::sort(all, std::ranges::greater(), [](const auto& one) { return one.second.first; });
  std::vector<std::string> list;
  for (const auto& [program, use] : all) {
    list.push_back(absl::StrCat(
        "{\"key\": ", JsonText(program->name), ", \"nodes\": ", program->nodes,
        ", \"kernels\": ", program->executable->stats().kernels, ", \"bytes\": ", program->bytes,
        ", \"compile_nanoseconds\": ", program->made_nanoseconds, ", \"from_disk\": ",
        program->loaded ? "true" : "false", ", \"runs\": ", use.second, ", \"reason\": \"", NameOf(program->reason),
        "\", \"position\": ", JsonText(ir::ToString(program->at)), ", \"text\": ", JsonText(program->why), "}"));
  }
  return list;
}

}  // namespace weft::compiler
