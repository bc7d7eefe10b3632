// reduce_by: combines the elements along some dimensions with a function, several tensors at once.
#include <algorithm>

#include "src/ir/differentiable.h"
#include "src/ops/batching.h"
#include "src/ops/planes.h"
#include "src/ops/scalar_function.h"
#include "src/ops/work.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kEveryType,
     .doc = "n inputs of one shape, then n scalars to begin with, then the scalars that the body captures",
     .variadic = true,
     .group = 0}};
constexpr AttrDef kAttrs[] = {{"dimensions", AttrType::kInts, "dimensions that vanish", true}};
constexpr RegionDef kRegions[] = {{"body", "n scalars so far, n to be taken in and its captures in, n scalars out"}};
constexpr std::string_view kResults[] = {"results"};
constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions}, {Part::kExample, Reason::kCarriesFunctions}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const BodyOperands is, CheckReducingBody(call));
  const Dims& dims = call.operands[0]->dims;
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(call.attrs), dims.size()));
  for (size_t i = 0; i < is.inputs; ++i) {
    results->push_back(Type::Tensor(call.operands[i]->dtype, Without(dims, axes)));
  }
  return absl::OkStatus();
}

// --- the gradient: that of a tree of pairs, which keeps the order of elements

// One level: neighbours that were combined, and what had no neighbour.
struct Level {
  Values left, right;
  bool odd = false;
};

Value Columns(Builder& b, const Value& x, int64_t first, int64_t end, int64_t step) {
  return Slice(b, x, {0, first}, {x.dims()[0], end}, {1, step});
}

// y[:, 2i] = left[:, i], y[:, 2i + 1] = right[:, i], and `last` behind them if it is there.
Value Interleave(Builder& b, const Value& left, const Value& right, const Value& last) {
  const int64_t rows = left.dims()[0], half = left.dims()[1];
  const Value pairs =
      Call(b, kOp_concatenate, {Reshape(b, left, {rows, half, 1}), Reshape(b, right, {rows, half, 1})}, {int64_t{2}});
  const Value even = Reshape(b, pairs, {rows, 2 * half});
  return last ? Call(b, kOp_concatenate, {even, last}, {int64_t{1}}) : even;
}

// The node seen as n matrices [kept elements, reduced elements].
struct Reduction {
  const Function& body;
  size_t inputs;
  Dims dims;
  Ints to_matrix, from_matrix;  // permutations
  Dims moved;                   // dims in the matrix's order
  int64_t rows = 1, columns = 1;
};

absl::StatusOr<Reduction> ReductionOf(const Node& node) {
  const Dims& dims = node.operands()[0].dims();
  Reduction r{*node.regions()[0], node.regions()[0]->results().size(), dims, {}, {}, {}};
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(node.attrs()), dims.size()));
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
      if ((std::ranges::find(axes, d) != axes.end()) != (pass == 1)) continue;
      r.to_matrix.push_back(d);
      r.moved.push_back(dims[d]);
      (pass == 0 ? r.rows : r.columns) *= dims[d];
    }
  }
  r.from_matrix.resize(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) r.from_matrix[r.to_matrix[i]] = static_cast<int64_t>(i);
  return r;
}

class TreeGradient {
 public:
  TreeGradient(const GradCall& call, Reduction reduction) : call_(call), b_(call.b), r_(std::move(reduction)) {
    for (const Value& capture : call.operands.subspan(2 * r_.inputs)) captures_.push_back(capture);
  }

  absl::Status Run(std::span<Value> grads) {
    const size_t all = 2 * r_.inputs + captures_.size();
    wanted_.reset(new bool[all]);
    for (size_t i = 0; i < all; ++i) {
      wanted_[i] = CarriesGradient(r_.body.parameters()[i].dtype()) && (i < 2 * r_.inputs || call_.wanted[i]);
    }
    WEFT_ASSIGN_OR_RETURN(gradient_, call_.region_gradient(r_.body, std::span<const bool>(wanted_.get(), all)));
    Values x, first;
    for (size_t i = 0; i < r_.inputs; ++i) {
      x.push_back(Reshape(b_, Transpose(b_, call_.operands[i], r_.to_matrix), {r_.rows, r_.columns}));
      first.push_back(BroadcastTo(b_, call_.operands[r_.inputs + i], {r_.rows, 1}));
    }
    Values g;
    for (size_t i = 0; i < r_.inputs; ++i) {
      const bool there = CarriesGradient(x[i].dtype()) && call_.cotangents[i];
      g.push_back(there ? Reshape(b_, call_.cotangents[i], {r_.rows, 1}) : Value());
      if (!there && CarriesGradient(x[i].dtype())) g.back() = Full(b_, x[i].dtype(), {r_.rows, 1}, 0);
    }
    captured_.resize(captures_.size());
    Values of_first = g, of_x(r_.inputs);
    if (r_.columns > 0) {
      WEFT_ASSIGN_OR_RETURN(const Values total, Up(x));
      WEFT_RETURN_IF_ERROR(Step(first, total, g, &of_first, &of_x));
      WEFT_RETURN_IF_ERROR(Down(&of_x));
    }
    for (size_t i = 0; i < r_.inputs; ++i) {
      if (call_.wanted[i] && r_.columns > 0) {
        grads[i] = Transpose(b_, Reshape(b_, of_x[i], r_.moved), r_.from_matrix);
      } else if (call_.wanted[i]) {
        grads[i] = FullLike(b_, call_.operands[i], 0);
      }
      if (call_.wanted[r_.inputs + i]) grads[r_.inputs + i] = SumTo(b_, of_first[i], {});
    }
    for (size_t c = 0; c < captured_.size(); ++c) grads[2 * r_.inputs + c] = captured_[c];
    return b_.status();
  }

 private:
  Values Together(std::span<const Value> left, std::span<const Value> right) {
    Values all(left.begin(), left.end());
    all.insert(all.end(), right.begin(), right.end());
    for (const Value& capture : captures_) all.push_back(BroadcastTo(b_, capture, left[0].dims()));
    return all;
  }

  // Combines pairs until one column is left; keeps the levels.
  absl::StatusOr<Values> Up(Values x) {
    while (x[0].dims()[1] > 1) {
      const int64_t n = x[0].dims()[1], even = n / 2 * 2;
      Level level{.left = {}, .right = {}, .odd = n != even};
      for (const Value& v : x) {
        level.left.push_back(Columns(b_, v, 0, even, 2));
        level.right.push_back(Columns(b_, v, 1, even, 2));
      }
      WEFT_RETURN_IF_ERROR(b_.status());
      WEFT_ASSIGN_OR_RETURN(Values next,
                            AtEveryElement(b_, r_.body, Together(level.left, level.right), {r_.rows, n / 2}));
      for (size_t i = 0; i < x.size() && level.odd; ++i) {
        next[i] = Call(b_, kOp_concatenate, {next[i], Columns(b_, x[i], even, n, 1)}, {int64_t{1}});
      }
      WEFT_RETURN_IF_ERROR(b_.status());
      levels_.push_back(std::move(level));
      x = std::move(next);
    }
    return x;
  }

  // Turns the cotangents of body(left, right) into those of left and right; captures' are added up.
  absl::Status Step(const Values& left, const Values& right, const Values& g, Values* of_left, Values* of_right) {
    Values all = Together(left, right);
    for (const Value& v : g) {
      if (v) all.push_back(v);
    }
    WEFT_RETURN_IF_ERROR(b_.status());
    WEFT_ASSIGN_OR_RETURN(const Values found, AtEveryElement(b_, *gradient_, all, left[0].dims()));
    size_t next = 0;
    for (size_t i = 0; i < r_.inputs; ++i) (*of_left)[i] = wanted_[i] ? found[next++] : Value();
    for (size_t i = 0; i < r_.inputs; ++i) (*of_right)[i] = wanted_[r_.inputs + i] ? found[next++] : Value();
    for (size_t c = 0; c < captures_.size(); ++c) {
      if (!wanted_[2 * r_.inputs + c]) continue;
      const Value sum = SumTo(b_, found[next++], {});
      captured_[c] = captured_[c] ? Add(b_, captured_[c], sum) : sum;
    }
    return b_.status();
  }

  absl::Status Down(Values* g) {
    for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
      const int64_t half = level->left[0].dims()[1];
      Values inner, last(r_.inputs), of_left(r_.inputs), of_right(r_.inputs);
      for (size_t i = 0; i < r_.inputs; ++i) {
        inner.push_back((*g)[i] && level->odd ? Columns(b_, (*g)[i], 0, half, 1) : (*g)[i]);
        if ((*g)[i] && level->odd) last[i] = Columns(b_, (*g)[i], half, half + 1, 1);
      }
      WEFT_RETURN_IF_ERROR(Step(level->left, level->right, inner, &of_left, &of_right));
      for (size_t i = 0; i < r_.inputs; ++i) {
        if ((*g)[i]) (*g)[i] = Interleave(b_, of_left[i], of_right[i], last[i]);
      }
    }
    return b_.status();
  }

  const GradCall& call_;
  Builder& b_;
  const Reduction r_;
  Values captures_;
  std::unique_ptr<bool[]> wanted_;  // of the body's parameters
  Ref<const Function> gradient_;
  std::vector<Level> levels_;
  Values captured_;
};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  WEFT_ASSIGN_OR_RETURN(Reduction reduction, ReductionOf(call.node));
  return TreeGradient(call, std::move(reduction)).Run(grads);
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  Attrs attrs = call.node.attrs();
  attrs.set(0, Shifted(attrs.IntList(0)));
  return BatchInputs(call, results.size(), std::move(attrs), results);
}

absl::Status Reference(const ReferenceCall& call) {
  const Function& body = *call.regions[0];
  const size_t n = body.results().size();
  const HostTensor& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(call.attrs), x.dims().size()));
  const Dims strides = StridesOf(x.dims()), kept = StridesOf(Without(x.dims(), axes));
  std::vector<HostTensor> arguments(2 * n);
  for (size_t i = 2 * n; i < call.operands.size(); ++i) arguments.push_back(*call.operands[i]);
  for (size_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < call.results[i].count(); ++k) CopyElement(*call.operands[n + i], 0, call.results[i], k);
  }
  PieceLook look(1000);
  for (int64_t k = 0; k < x.count() && !look.Ends(); ++k) {
    int64_t to = 0;
    for (size_t d = 0, next = 0; d < x.dims().size(); ++d) {
      if (std::ranges::find(axes, static_cast<int64_t>(d)) != axes.end()) continue;
      to += k / strides[d] % x.dims()[d] * kept[next++];
    }
    for (size_t i = 0; i < n; ++i) {
      arguments[i] = ElementOf(call.results[i], to);
      arguments[n + i] = ElementOf(*call.operands[i], k);
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<HostTensor> next, call.run(body, arguments));
    for (size_t i = 0; i < n; ++i) CopyElement(next[i], 0, call.results[i], to);
  }
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Function& body = *node.regions()[0];
  const size_t n = body.results().size();
  auto axes = NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(node.attrs()), node.operands()[0].dims().size());
  if (!axes.ok()) return writer.Fail(axes.status());
  std::vector<std::string> operands;
  for (const Value& operand : node.operands().first(2 * n)) operands.push_back(writer.Name(operand));
  writer.EmitOn("reduce", operands, {{"dimensions", ShloArray(*axes)}},
                writer.Body(body, node.operands().subspan(2 * n)));
}

}  // namespace

constinit const OpDef kOp_reduce_by = {
    .name = "reduce_by",
    .c_name = "reduce_by",
    .doc =
        "Combines the elements of n tensors along some dimensions, which vanish, with a function of scalars, beginning with "
        "given scalars: StableHLO's reduce with any body. The body takes elements in with their order kept, but neighbours "
        "may be combined first, so it must be associative. What adds, multiplies, compares or masks one tensor is reduce. "
        "For recorded functions; not callable from C yet.",
    .operands = kOperands,
    .attrs = kAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kKernel,
    .reference = Reference,
    .stablehlo = StableHlo,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
    .planes = InPlace,
    .work = WorkOfReduction,
    .on_bytes = true,
};

Values ReduceBy(Builder& b, std::span<const Value> inputs, std::span<const Value> inits,
                const Ref<const Function>& body, const Ints& dimensions, std::span<const Value> captures) {
  if (!b.ok()) return Values(inputs.size());
  // A reduction of no dimensions combines nothing, and the initial values, being neutral, change nothing: XLA leaves
  // them out.
  if (dimensions.empty() && inputs.size() == body->results().size()) return {inputs.begin(), inputs.end()};
  const std::optional<Reducer> plain = PlainReducer(*body);
  if (plain && inputs.size() == 1 && inits.size() == 1 && captures.empty()) {
    const Value reduced = Reduce(b, inputs[0], *plain, dimensions);
    if (!b.ok() || IsNeutral(inits[0], *plain)) return {reduced};
    const Values pair = {BroadcastTo(b, inits[0], reduced.dims()), reduced};
    absl::StatusOr<Values> combined = AtEveryElement(b, *body, pair, reduced.dims());
    if (combined.ok()) return *std::move(combined);
    b.Fail(combined.status());
    return Values(1);
  }
  Values operands(inputs.begin(), inputs.end());
  operands.insert(operands.end(), inits.begin(), inits.end());
  operands.insert(operands.end(), captures.begin(), captures.end());
  return CallAll(b, kOp_reduce_by, std::move(operands), {dimensions}, {&body, 1});
}

}  // namespace weft::ops
