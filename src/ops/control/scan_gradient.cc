// The gradient of a scan: the loop forwards, which also stacks what its gradient reads, then one backwards.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/ir/differentiable.h"
#include "src/ir/rewrite.h"
#include "src/ops/control/scan.h"
#include "src/ops/parameter.h"

namespace weft::ops {
namespace {

using namespace ir;

// Something that a run backwards reads, and which of its kind it is.
struct Read {
  enum From { kIndex, kCarriedIn, kScanned, kCapture, kCarriedOut, kSlice, kFlow, kCotangent } from;
  size_t i;

  bool operator==(const Read&) const = default;
};

// A function that is being made: its parameters, one after the other.
struct Signature {
  std::vector<Value> parameters;

  Value One(const Type& type) {
    parameters.push_back(Parameter(type));
    return parameters.back();
  }
  std::vector<Value> Many(std::span<const Value> like) {
    std::vector<Value> made;
    for (const Value& value : like) made.push_back(One(value.type()));
    return made;
  }
};

// The parts of the backward loop. It carries cotangents of the carried values, sums for the captures, and the carried
// results of the run before, which are the carried inputs of the run after it. Rows are all other values that a run
// reads of its own.
struct Backward {
  const GradCall& call;
  const ScanParts& p;
  const Function& body;
  std::vector<size_t> flows;              // carried values that have a cotangent: the float ones
  std::vector<size_t> slices;             // results behind the carried ones that have a cotangent
  std::vector<size_t> scanned, captured;  // wanted
  bool stacks = false;                    // cotangents of what was kept arrive, as they do of second order
  Ref<const SplitGradient> split = nullptr;
  std::vector<size_t> outs = {};  // carried values
  std::vector<Read> reads = {}, rows = {};

  size_t sums() const { return flows.size() + captured.size(); }
  size_t carried() const { return sums() + outs.size(); }
  // The body, and what it computes for its gradient behind its results.
  const Function& forward() const { return split->forward != nullptr ? *split->forward : body; }

  Value Cotangent(size_t result) const {
    return call.cotangents[result] ? call.cotangents[result] : FullLike(call.b, call.results[result], 0);
  }
  // Cotangents of what was carried, sums of the captures, cotangents of what was scanned.
  void Give(std::span<const Value> found, size_t all_carried, std::span<Value> grads) const {
    const size_t first = p.counted + p.carried;
    for (size_t i = 0; i < flows.size(); ++i) {
      if (call.wanted[p.counted + flows[i]]) grads[p.counted + flows[i]] = found[i];
    }
    for (size_t i = 0; i < captured.size(); ++i) grads[first + p.scanned + captured[i]] = found[flows.size() + i];
    for (size_t i = 0; i < scanned.size(); ++i) grads[first + scanned[i]] = found[all_carried + i];
  }

  // Translates a number of SplitGradient: the body's parameters, forward results, cotangents.
  Read Numbered(size_t i) const {
    const size_t cotangents = forward().results().size();
    if (i < p.indexed) return {Read::kIndex, 0};
    if ((i -= p.indexed) < p.carried) return {Read::kCarriedIn, i};
    if ((i -= p.carried) < p.scanned) return {Read::kScanned, i};
    if ((i -= p.scanned) < p.captures) return {Read::kCapture, i};
    if ((i -= p.captures) < cotangents) return {i < p.carried ? Read::kCarriedOut : Read::kSlice, i};
    if ((i -= cotangents) < flows.size()) return {Read::kFlow, i};
    return {Read::kCotangent, i - flows.size()};
  }
  size_t RowOf(const Read& read) const { return static_cast<size_t>(std::ranges::find(rows, read) - rows.begin()); }
  const Type& TypeOf(const Read& row) const {
    if (row.from == Read::kSlice) return forward().results()[row.i].type();
    if (row.from == Read::kCotangent) return body.results()[slices[row.i]].type();
    return body.parameters()[p.indexed + row.i + (row.from == Read::kScanned ? p.carried : 0)].type();
  }
};

absl::StatusOr<Backward> Sort(const GradCall& call, const ScanParts& p, const Function& body) {
  Backward w{call, p, body, {}, {}, {}, {}};
  absl::InlinedVector<bool, 16> given(body.results().size(), false), wanted(body.parameters().size(), false);
  for (size_t i = 0; i < p.carried; ++i) {
    if (!CarriesGradient(body.results()[i].dtype())) continue;
    w.flows.push_back(i);
    w.stacks = w.stacks || (p.kept && call.cotangents[p.carried + p.sliced + i]);
    given[i] = wanted[p.indexed + i] = true;
  }
  for (size_t i = p.carried; i < body.results().size(); ++i) {
    if (!CarriesGradient(body.results()[i].dtype()) || !call.cotangents[i]) continue;
    w.slices.push_back(i);
    given[i] = true;
  }
  const size_t first = p.counted + p.carried;
  for (size_t i = 0; i < p.scanned; ++i) {
    if (!call.wanted[first + i]) continue;
    w.scanned.push_back(i);
    wanted[p.indexed + p.carried + i] = true;
  }
  for (size_t i = 0; i < p.captures; ++i) {
    if (!call.wanted[first + p.scanned + i]) continue;
    w.captured.push_back(i);
    wanted[p.first_capture() + i] = true;
  }
  WEFT_ASSIGN_OR_RETURN(
      w.split, call.region_split(body, std::span(wanted.data(), wanted.size()), std::span(given.data(), given.size())));
  const auto add_row = [&](const Read& read) {
    if (std::ranges::find(w.rows, read) == w.rows.end()) w.rows.push_back(read);
  };
  for (const uint32_t number : w.split->reads) {
    const Read read = w.Numbered(number);
    w.reads.push_back(read);
    if (read.from == Read::kCarriedOut) {
      w.outs.push_back(read.i);
      add_row({Read::kCarriedIn, read.i});
    } else if (read.from != Read::kIndex && read.from != Read::kCapture && read.from != Read::kFlow) {
      add_row(read);
    }
  }
  return w;
}

// One run backwards: the index, what is carried, rows, cotangents of what was kept, captures in; what is carried next, then
// cotangents of the scanned slices out.
absl::StatusOr<Ref<const Function>> BackwardBody(const Backward& w) {
  const ScanParts& p = w.p;
  const auto type = [&](size_t parameter) -> const Type& { return w.body.parameters()[parameter].type(); };
  Signature s;
  Builder b(w.call.b.location());
  Value index;
  std::vector<Value> flows, sums, outs, rows, stacks, captures;
  if (p.indexed != 0) index = s.One(type(0));
  for (const size_t i : w.flows) flows.push_back(s.One(type(p.indexed + i)));
  for (const size_t i : w.captured) sums.push_back(s.One(type(p.first_capture() + i)));
  for (const size_t i : w.outs) outs.push_back(s.One(type(p.indexed + i)));
  for (const Read& row : w.rows) rows.push_back(s.One(w.TypeOf(row)));
  if (w.stacks) stacks = s.Many(flows);
  for (size_t i = 0; i < p.captures; ++i) captures.push_back(s.One(type(p.first_capture() + i)));
  std::vector<Value> arguments;
  for (const Read& read : w.reads) {
    switch (read.from) {
      case Read::kIndex: arguments.push_back(index); break;
      case Read::kCapture: arguments.push_back(captures[read.i]); break;
      case Read::kFlow: arguments.push_back(flows[read.i]); break;
      case Read::kCarriedOut:
        arguments.push_back(outs[static_cast<size_t>(std::ranges::find(w.outs, read.i) - w.outs.begin())]);
        break;
      default: arguments.push_back(rows[w.RowOf(read)]);
    }
  }
  // In the order of the parameters: carried, scanned, captured.
  const Values found = Inline(*w.split->backward, arguments);
  std::vector<Value> out;
  for (size_t i = 0; i < flows.size(); ++i) out.push_back(w.stacks ? Add(b, found[i], stacks[i]) : found[i]);
  for (size_t i = 0; i < sums.size(); ++i) {
    out.push_back(Add(b, sums[i], found[flows.size() + w.scanned.size() + i]));
  }
  for (const size_t i : w.outs) out.push_back(rows[w.RowOf({Read::kCarriedIn, i})]);
  for (size_t i = 0; i < w.scanned.size(); ++i) out.push_back(found[flows.size() + i]);
  WEFT_RETURN_IF_ERROR(b.status());
  return Intern(Function::Create(w.split->backward->name(), std::move(s.parameters), std::move(out)));
}

void Append(Values& all, std::span<const Value> more) { all.insert(all.end(), more.begin(), more.end()); }

// The gradient where of what is carried only that into every k-th run was kept. From the last segment of k runs to the first: it runs
// once more and keeps all that its gradient reads, then backwards. Cotangents and sums go on from segment to segment, so that all is added in
// the order of the plain gradient, of which this has the bits. Cotangents of what is scanned are carried, too, and written row by row.
class Segments {
 public:
  explicit Segments(const Backward& w) : w_(w), p_(w.p), ragged_(p_.counted != 0 || p_.length % p_.every != 0) {}

  absl::Status Run(std::span<Value> grads) {
    Builder& b = w_.call.b;
    const GradCall& call = w_.call;
    const size_t first = p_.counted + p_.carried, kept = p_.carried + p_.sliced;
    Around around;
    if (p_.counted != 0) around.count = Minimum(b, call.operands[0], Number(b, p_.length));
    for (size_t i = 0; i < p_.scanned; ++i) around.scanned.push_back(call.operands[first + i]);
    for (size_t i = 0; i < p_.captures; ++i) around.captures.push_back(call.operands[first + p_.scanned + i]);
    for (const size_t i : w_.slices) around.cotangents.push_back(call.cotangents[i]);
    std::vector<Value> state, stacks;
    for (const size_t i : w_.flows) state.push_back(w_.Cotangent(i));
    for (const size_t i : w_.captured) state.push_back(FullLike(b, around.captures[i], 0));
    for (const size_t i : w_.scanned) state.push_back(FullLike(b, around.scanned[i], 0));
    for (size_t i = 0; i < p_.carried; ++i) stacks.push_back(call.results[kept + i]);
    for (size_t i = 0; w_.stacks && i < w_.flows.size(); ++i) stacks.push_back(w_.Cotangent(kept + w_.flows[i]));
    WEFT_RETURN_IF_ERROR(b.status());
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> segment, Segment(around, state, stacks));
    Values operands;
    if (p_.counted != 0) {
      const Value every = Number(b, p_.every), rest = Call(b, kOp_rem, {around.count, every});
      operands.push_back(Add(b, Div(b, around.count, every), Minimum(b, rest, Number(b, 1))));
    }
    Append(operands, state);
    Append(operands, stacks);
    Append(operands, around.All());
    const Runs runs = {p_.segments(), state.size(), 0, true, p_.counted != 0};
    const Values found = CallAll(b, kOp_scan, std::move(operands), runs.Attributes(), {&segment, 1});
    WEFT_RETURN_IF_ERROR(b.status());
    w_.Give(found, w_.sums(), grads);
    return absl::OkStatus();
  }

 private:
  // The values that all runs have in common.
  struct Around {
    Value count;                             // how often the body runs, where that is known at run time
    std::vector<Value> scanned, cotangents;  // whole
    std::vector<Value> captures;

    Values All() const {
      Values all;
      if (count) all.push_back(count);
      Append(all, scanned);
      Append(all, cotangents);
      Append(all, captures);
      return all;
    }
    Around In(Signature& s) const {
      Around in;
      if (count) in.count = s.One(count.type());
      in.scanned = s.Many(scanned);
      in.cotangents = s.Many(cotangents);
      in.captures = s.Many(captures);
      return in;
    }
  };

  // A scan that takes the index.
  struct Runs {
    int64_t length;
    size_t carried, scanned;
    bool reverse, counted;
    int64_t unroll = 1;

    Attrs Attributes() const {
      Attrs said;
      said.set(AttrPosition<kScanAttrs, "length">(), length);
      said.set(AttrPosition<kScanAttrs, "carried">(), static_cast<int64_t>(carried));
      said.set(AttrPosition<kScanAttrs, "scanned">(), static_cast<int64_t>(scanned));
      said.set(AttrPosition<kScanAttrs, "reverse">(), int64_t{reverse});
      said.set(AttrPosition<kScanAttrs, "indexed">(), int64_t{1});
      said.set(AttrPosition<kScanAttrs, "counted">(), int64_t{counted});
      said.set(AttrPosition<kScanAttrs, "unroll">(), unroll);
      return said;
    }
  };

  static Value Number(Builder& b, int64_t value) { return Scalar(b, DType::kI32, static_cast<double>(value)); }

  // The body's index in run `i` of the segment whose first run is `first`.
  Value At(Builder& b, const Around& around, const Value& first, const Value& i) const {
    const Value run = Add(b, first, i);
    if (!p_.reverse) return run;
    return Sub(b, Sub(b, around.count ? around.count : Number(b, p_.length), Number(b, 1)), run);
  }

  // The arguments that either body begins with: the index, the carried values, the slices.
  std::vector<Value> Arguments(Builder& b, const Around& around, const Value& at, std::span<const Value> next) const {
    std::vector<Value> arguments;
    if (p_.indexed != 0) arguments.push_back(at);
    std::ranges::copy(next, std::back_inserter(arguments));
    for (const Value& stack : around.scanned) arguments.push_back(Row(b, stack, at));
    return arguments;
  }

  // Tells whether the forward run within the segment has to give this row; otherwise the values around the loop do.
  static bool Inside(const Read& row) { return row.from == Read::kCarriedIn || row.from == Read::kSlice; }

  // One run forwards: its number in the segment, what is carried, the segment's first run and what is around in; what is carried next
  // and those slices that the run backwards reads out.
  absl::StatusOr<Ref<const Function>> Forward(const Around& outside) const {
    Signature s;
    Builder b(w_.call.b.location());
    const Value i = s.One(kNumber);
    const std::vector<Value> carried = s.Many(w_.body.parameters().subspan(p_.indexed, p_.carried));
    const Value first = s.One(kNumber);
    const Around around = outside.In(s);
    std::vector<Value> arguments = Arguments(b, around, At(b, around, first, i), carried);
    std::ranges::copy(around.captures, std::back_inserter(arguments));
    WEFT_RETURN_IF_ERROR(b.status());
    const Values found = Inline(w_.forward(), arguments);
    std::vector<Value> out(found.begin(), found.begin() + static_cast<ptrdiff_t>(p_.carried));
    for (const Read& row : w_.rows) {
      if (row.from == Read::kSlice) out.push_back(found[row.i]);
    }
    return Intern(Function::Create(w_.forward().name(), std::move(s.parameters), std::move(out)));
  }

  // One run backwards: its number in the segment, `state`, what the run carried out, its rows, the segment's first run and what is
  // around in; the next state and what was carried in out.
  absl::StatusOr<Ref<const Function>> Back(const Around& outside, std::span<const Value> like) const {
    Backward plain = w_;
    plain.stacks = false;
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> run, BackwardBody(plain));
    Signature s;
    Builder b(w_.call.b.location());
    const Value i = s.One(kNumber);
    const std::vector<Value> state = s.Many(like);
    std::vector<Value> outs, rows(w_.rows.size());
    for (const size_t c : w_.outs) outs.push_back(s.One(w_.body.parameters()[p_.indexed + c].type()));
    for (size_t k = 0; k < rows.size(); ++k) {
      if (Inside(w_.rows[k])) rows[k] = s.One(w_.TypeOf(w_.rows[k]));
    }
    const Value first = s.One(kNumber);
    const Around around = outside.In(s);
    const Value at = At(b, around, first, i);
    for (size_t k = 0; k < rows.size(); ++k) {
      const Read& row = w_.rows[k];
      if (!Inside(row)) rows[k] = Row(b, (row.from == Read::kScanned ? around.scanned : around.cotangents)[row.i], at);
    }
    std::vector<Value> arguments;
    if (p_.indexed != 0) arguments.push_back(at);
    std::ranges::copy(std::span(state).first(w_.sums()), std::back_inserter(arguments));
    for (const std::vector<Value>& more : {outs, rows, around.captures}) {
      std::ranges::copy(more, std::back_inserter(arguments));
    }
    WEFT_RETURN_IF_ERROR(b.status());
    const Values found = Inline(*run, arguments);
    const std::span<const Value> all(found.begin(), found.end());
    std::vector<Value> next(all.begin(), all.begin() + static_cast<ptrdiff_t>(w_.sums()));
    for (size_t k = 0; k < w_.scanned.size(); ++k) {
      next.push_back(WithRow(b, state[w_.sums() + k], at, all[w_.carried() + k]));
    }
    std::ranges::copy(all.subspan(w_.sums(), outs.size()), std::back_inserter(next));
    WEFT_RETURN_IF_ERROR(b.status());
    return Intern(Function::Create(run->name(), std::move(s.parameters), std::move(next)));
  }

  // One segment: its number, `state`, what was kept (and the cotangents of that), what is around in; the next state.
  absl::StatusOr<Ref<const Function>> Segment(const Around& outside, std::span<const Value> like,
                                              std::span<const Value> kept) const {
    Signature s;
    Builder b(w_.call.b.location());
    const Value number = s.One(kNumber);
    const std::vector<Value> state = s.Many(like), stacks = s.Many(kept);
    const Around around = outside.In(s);
    const Value first = Mul(b, number, Number(b, p_.every));
    Values again, back;
    if (ragged_) {
      const Value all = around.count ? around.count : Number(b, p_.length);
      again.push_back(Minimum(b, Sub(b, all, first), Number(b, p_.every)));
      back.push_back(again.front());
    }
    Around seen = around;
    seen.cotangents.clear();
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> forward, Forward(seen));
    for (size_t i = 0; i < p_.carried; ++i) again.push_back(Row(b, stacks[i], number));
    again.push_back(first);
    Append(again, seen.All());
    Runs runs = {p_.every, p_.carried, 0, false, ragged_, Attr<kScanAttrs, "unroll">(w_.call.node.attrs())};
    const Values run = CallAll(b, kOp_scan, std::move(again), runs.Attributes(), {&forward, 1});
    WEFT_RETURN_IF_ERROR(b.status());
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> backward, Back(around, state));
    Append(back, state);
    for (const size_t i : w_.outs) back.push_back(run[i]);
    runs.carried = state.size() + w_.outs.size(), runs.scanned = 0, runs.reverse = true;
    const auto slices = static_cast<size_t>(std::ranges::count(w_.rows, Read::kSlice, &Read::from));
    for (size_t k = 0, slice = p_.carried; k < w_.rows.size(); ++k) {
      const Read& row = w_.rows[k];
      if (!Inside(row)) continue;
      back.push_back(row.from == Read::kSlice ? run[slice++] : run[p_.carried + slices + row.i]);
      ++runs.scanned;
    }
    back.push_back(first);
    Append(back, around.All());
    const Values found = CallAll(b, kOp_scan, std::move(back), runs.Attributes(), {&backward, 1});
    WEFT_RETURN_IF_ERROR(b.status());
    std::vector<Value> next(found.begin(), found.begin() + static_cast<ptrdiff_t>(state.size()));
    for (size_t i = p_.carried; i < stacks.size(); ++i) {
      next[i - p_.carried] = Add(b, next[i - p_.carried], Row(b, stacks[i], number));
    }
    WEFT_RETURN_IF_ERROR(b.status());
    return Intern(Function::Create(absl::StrCat(w_.body.name(), ".segment"), std::move(s.parameters), std::move(next)));
  }

  const Type kNumber = Type::Scalar(DType::kI32);
  const Backward& w_;
  const ScanParts& p_;
  const bool ragged_;  // not every segment has as many runs
};

// The gradient of which all that it reads was kept.
absl::Status Whole(const Backward& w, std::span<Value> grads) {
  const GradCall& call = w.call;
  const ScanParts& p = w.p;
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> backward, BackwardBody(w));
  Values run(call.results.begin(), call.results.end());
  if (w.split->forward != nullptr) {
    run = CallAll(b, kOp_scan, {call.operands.begin(), call.operands.end()}, call.node.attrs(), {&w.split->forward, 1});
    WEFT_RETURN_IF_ERROR(b.status());
  }
  const size_t first = p.counted + p.carried, kept = w.forward().results().size();
  Values operands;
  if (p.counted != 0) operands.push_back(call.operands[0]);
  for (const size_t i : w.flows) operands.push_back(w.Cotangent(i));
  for (const size_t i : w.captured) operands.push_back(FullLike(b, call.operands[first + p.scanned + i], 0));
  for (const size_t i : w.outs) operands.push_back(run[i]);
  size_t scanned = operands.size();
  for (const Read& row : w.rows) {
    switch (row.from) {
      case Read::kCarriedIn: operands.push_back(run[kept + row.i]); break;
      case Read::kScanned: operands.push_back(call.operands[first + row.i]); break;
      case Read::kSlice: operands.push_back(run[row.i]); break;
      default: operands.push_back(call.cotangents[w.slices[row.i]]);
    }
  }
  for (size_t i = 0; w.stacks && i < w.flows.size(); ++i) {
    operands.push_back(w.Cotangent(p.carried + p.sliced + w.flows[i]));
  }
  scanned = operands.size() - scanned;
  for (size_t i = 0; i < p.captures; ++i) operands.push_back(call.operands[first + p.scanned + i]);
  Attrs said = call.node.attrs();
  said.set(AttrPosition<kScanAttrs, "carried">(), static_cast<int64_t>(w.carried()));
  said.set(AttrPosition<kScanAttrs, "scanned">(), static_cast<int64_t>(scanned));
  said.set(AttrPosition<kScanAttrs, "reverse">(), int64_t{p.reverse ? 0 : 1});
  const Values found = CallAll(b, kOp_scan, std::move(operands), std::move(said), {&backward, 1});
  WEFT_RETURN_IF_ERROR(b.status());
  w.Give(found, w.carried(), grads);
  return absl::OkStatus();
}

}  // namespace

absl::Status ScanGradient(const GradCall& call, std::span<Value> grads) {
  const Function& body = *call.node.regions()[0];
  WEFT_ASSIGN_OR_RETURN(const ScanParts p, PartsOf(call.node.attrs(), body));
  if (!p.kept) {
    return UserErrorOf(
        absl::StatusCode::kUnimplemented,
        "a loop without a bound on its iterations has no reverse-mode gradient: say how many there are at "
        "most (max_count), so that what is carried into each can be kept");
  }
  WEFT_ASSIGN_OR_RETURN(const Backward w, Sort(call, p, body));
  return p.every > 1 ? Segments(w).Run(grads) : Whole(w, grads);
}

}  // namespace weft::ops
