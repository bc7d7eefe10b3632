// Complex values as two real ones, so that no backend has any: c64[2, 3] becomes its real and its imaginary f32[2, 3], in the main
// function and in all that it carries, where parameters, results and operands double in place. Only the module's own parameters and
// results stay complex: their memory is seen as f32[2, 3, 2]. A rule for each operation says what its planes are.
#include <vector>

#include "src/ir/rewrite.h"
#include "src/ops/complex.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/scalar_function.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"

namespace weft::passes {
namespace {

using ir::Attrs;
using ir::Builder;
using ir::Function;
using ir::Ints;
using ir::Node;
using ir::Value;
using ir::Values;
using ops::Planes;

bool IsComplexType(const ir::Type& type) { return type.is_tensor() && IsComplex(type.dtype); }

bool HasComplexItself(const Function& function) {
  for (const Node* node : function.nodes()) {
    if (node->op().lowering == ir::Lowering::kPlanes) return true;
    for (const ir::Type& type : node->results()) {
      if (IsComplexType(type)) return true;
    }
  }
  return false;
}

bool HasComplex(const Function& function) {
  for (const Function* each : ir::CalleesFirst(function)) {
    if (HasComplexItself(*each)) return true;
  }
  return false;
}

// What a value has become: itself, or two of the part's type. Empty for an operand that is absent.
struct Split {
  Value whole;
  Planes planes;
  bool complex() const { return static_cast<bool>(planes.re); }
};
using Splits = std::vector<Split>;

struct Call {
  Builder& b;
  const Node& node;
  std::span<const Split> operands;
  std::span<const Ref<const Function>> regions;  // already split

  const ir::OpDef& op() const { return node.op(); }
  const Attrs& attrs() const { return node.attrs(); }
  const Planes& planes(size_t i) const { return operands[i].planes; }
};
// One for each result. Mistakes stick to the builder.
using Rule = Splits (*)(const Call& call);

Splits One(Planes planes) { return {Split{{}, std::move(planes)}}; }
Splits Real(Value value) { return {Split{std::move(value), {}}}; }

// Moves, chooses and sums: on either plane as on the other.
Splits EachPlane(const Call& call) {
  Values re, im;
  for (const Split& operand : call.operands) {
    re.push_back(operand.complex() ? operand.planes.re : operand.whole);
    im.push_back(operand.complex() ? operand.planes.im : operand.whole);
  }
  const Value real = ops::Call(call.b, call.op(), std::move(re), call.attrs());
  return One({real, ops::Call(call.b, call.op(), std::move(im), call.attrs())});
}

// Any number of values, carried functions among them, that double in place.
Splits InPlace(const Call& call, std::span<const Ref<const Function>> regions) {
  Values flat;
  for (const Split& operand : call.operands) {
    flat.push_back(operand.complex() ? operand.planes.re : operand.whole);
    if (operand.complex()) flat.push_back(operand.planes.im);
  }
  const Values found = call.b.EmitAll(call.op(), std::move(flat), call.attrs(), regions);
  Splits results;
  size_t next = 0;
  for (const ir::Type& type : call.node.results()) {
    if (!call.b.ok()) return {};
    const bool complex = IsComplexType(type);
    results.push_back(complex ? Split{{}, {found[next], found[next + 1]}} : Split{found[next], {}});
    next += complex ? 2 : 1;
  }
  return results;
}
Splits InPlace(const Call& call) { return InPlace(call, call.regions); }

// The comparator takes pairs, x's and y's real part and then their imaginary one, where doubling gives x whole before y.
Splits SortBy(const Call& call) {
  const Function &before = *call.node.regions()[0], &split = *call.regions[0];
  const size_t inputs = call.node.results().size();
  std::vector<Value> parameters;
  size_t next = 0;
  for (size_t i = 0; i < before.parameters().size(); ++i) {
    const bool complex = IsComplex(before.parameters()[i].dtype());
    if (i < 2 * inputs && complex && i % 2 == 0) {
      for (const size_t at : {0, 2, 1, 3}) parameters.push_back(split.parameters()[next + at]);
      next += 4, ++i;
      continue;
    }
    for (int k = 0; k < (complex ? 2 : 1); ++k) parameters.push_back(split.parameters()[next++]);
  }
  const Ref<const Function> ordered =
      Function::Create(split.name(), std::move(parameters), {split.results().begin(), split.results().end()});
  return InPlace(call, {&ordered, 1});
}

template <Planes (*formula)(Builder&, const Planes&)>
Splits Unary(const Call& call) {
  return One(formula(call.b, call.planes(0)));
}
template <Planes (*formula)(Builder&, const Planes&, const Planes&)>
Splits Binary(const Call& call) {
  return One(formula(call.b, call.planes(0), call.planes(1)));
}

Splits Abs(const Call& call) { return Real(ops::ComplexAbs(call.b, call.planes(0))); }

Splits Compare(const Call& call) {
  const auto direction = static_cast<ops::Direction>(ops::CompareAttrs{call.attrs()}.direction());
  const Value re = ops::Compare(call.b, direction, call.planes(0).re, call.planes(1).re);
  const Value im = ops::Compare(call.b, direction, call.planes(0).im, call.planes(1).im);
  const ir::OpDef& join = direction == ops::Direction::kEq ? ops::kOp_bitwise_and : ops::kOp_bitwise_or;
  return Real(ops::Call(call.b, join, {re, im}));
}

// Zeros for the imaginary part of what has none.
Planes FromReal(Builder& b, const Value& re) { return {re, ops::FullLike(b, re, 0)}; }

// To bool: whether it is not 0. To other real types the imaginary part is dropped, as StableHLO says.
Splits Convert(const Call& call) {
  const DType to = call.node.type().dtype;
  const Split& x = call.operands[0];
  if (!x.complex()) return One(FromReal(call.b, ops::Convert(call.b, x.whole, PartOf(to))));
  if (IsComplex(to)) {
    return One({ops::Convert(call.b, x.planes.re, PartOf(to)), ops::Convert(call.b, x.planes.im, PartOf(to))});
  }
  const Value re = ops::Convert(call.b, x.planes.re, to);
  if (!IsBool(to)) return Real(re);
  return Real(ops::Call(call.b, ops::kOp_bitwise_or, {re, ops::Convert(call.b, x.planes.im, to)}));
}

Splits Complex(const Call& call) { return One({call.operands[0].whole, call.operands[1].whole}); }
Splits RealPart(const Call& call) {
  return Real(call.operands[0].complex() ? call.planes(0).re : call.operands[0].whole);
}
Splits ImaginaryPart(const Call& call) {
  const Split& x = call.operands[0];
  return Real(x.complex() ? x.planes.im : ops::FullLike(call.b, x.whole, 0));
}

Splits Constant(const Call& call) {
  const HostTensor& value = ops::ConstantAttrs{call.attrs()}.value();
  return One({ops::Constant(call.b, value.Part(0)), ops::Constant(call.b, value.Part(1))});
}

Splits Iota(const Call& call) {
  const ir::Type& type = call.node.type();
  const int64_t dimension = ops::IotaAttrs{call.attrs()}.dimension();
  return One(FromReal(call.b, ops::Iota(call.b, PartOf(type.dtype), type.dims, dimension)));
}

// (a + i b)(c + i d) by four products: three would lose digits of the smaller part.
Splits Product(const Call& call) {
  Attrs attrs = call.attrs();
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (const auto* dtype = std::get_if<DType>(&attrs.at(i))) attrs.set(i, PartOf(*dtype));
  }
  const auto product = [&](const Value& x, const Value& y) { return ops::Call(call.b, call.op(), {x, y}, attrs); };
  const Planes &x = call.planes(0), &y = call.planes(1);
  return One({ops::Sub(call.b, product(x.re, y.re), product(x.im, y.im)),
              ops::Add(call.b, product(x.re, y.im), product(x.im, y.re))});
}

// --- Products as reductions: one function of both planes.

Ref<const Function> MultiplyBody(Builder& b, DType part) {
  const DType types[] = {part, part, part, part};
  auto body = ops::MakeScalarFunction("multiply", types, [](Builder& inner, std::span<const Value> p) {
    const Planes product = ops::ComplexMul(inner, {p[0], p[1]}, {p[2], p[3]});
    return Values{product.re, product.im};
  });
  if (!body.ok()) b.Fail(body.status());
  return body.ok() ? *std::move(body) : nullptr;
}

bool IsProduct(int64_t reducer) { return static_cast<ops::Reducer>(reducer) == ops::Reducer::kProd; }

Splits MultiplyAll(const Call& call, const ir::OpDef& by, Values operands, Attrs attrs) {
  const Ref<const Function> body = MultiplyBody(call.b, operands[0].dtype());
  if (body == nullptr) return {};
  const Values found = ops::CallAll(call.b, by, std::move(operands), std::move(attrs), {&body, 1});
  return call.b.ok() ? One({found[0], found[1]}) : Splits();
}

Values WithOne(Builder& b, const Planes& x) {
  return {x.re, x.im, ops::Scalar(b, x.re.dtype(), 1), ops::Scalar(b, x.re.dtype(), 0)};
}

Splits Reduce(const Call& call) {
  const ops::ReduceAttrs a{call.attrs()};
  if (!IsProduct(a.reducer())) return EachPlane(call);
  return MultiplyAll(call, ops::kOp_reduce_by, WithOne(call.b, call.planes(0)), {a.dimensions()});
}

// The attributes, but the reducer.
Attrs WithoutReducer(const Call& call, size_t reducer_at) {
  Attrs attrs;
  for (size_t i = 0; i < call.attrs().size(); ++i) {
    if (i != reducer_at) attrs.set(i > reducer_at ? i - 1 : i, call.attrs().at(i));
  }
  return attrs;
}

Splits ReduceWindow(const Call& call) {
  if (!IsProduct(ops::ReduceWindowAttrs{call.attrs()}.reducer())) return EachPlane(call);
  return MultiplyAll(call, ops::kOp_reduce_window_by, WithOne(call.b, call.planes(0)), WithoutReducer(call, 1));
}

Splits Scatter(const Call& call) {
  if (!IsProduct(ops::ScatterAttrs{call.attrs()}.reducer())) return EachPlane(call);
  const Planes &x = call.planes(0), &updates = call.planes(2);
  return MultiplyAll(call, ops::kOp_scatter_by, {x.re, x.im, call.operands[1].whole, updates.re, updates.im},
                     WithoutReducer(call, 4));
}

struct OpRule {
  const ir::OpDef* op;
  Rule rule;
};
constexpr OpRule kRules[] = {
    {&ops::kOp_broadcast_in_dim, EachPlane},
    {&ops::kOp_reshape, EachPlane},
    {&ops::kOp_transpose, EachPlane},
    {&ops::kOp_slice, EachPlane},
    {&ops::kOp_concatenate, EachPlane},
    {&ops::kOp_reverse, EachPlane},
    {&ops::kOp_pad, EachPlane},
    {&ops::kOp_gather, EachPlane},
    {&ops::kOp_dynamic_slice, EachPlane},
    {&ops::kOp_dynamic_update_slice, EachPlane},
    {&ops::kOp_where, EachPlane},
    {&ops::kOp_add, EachPlane},
    {&ops::kOp_sub, EachPlane},
    {&ops::kOp_neg, EachPlane},
    {&ops::kOp_mul, Binary<ops::ComplexMul>},
    {&ops::kOp_div, Binary<ops::ComplexDiv>},
    {&ops::kOp_pow, Binary<ops::ComplexPow>},
    {&ops::kOp_abs, Abs},
    {&ops::kOp_sign, Unary<ops::ComplexSign>},
    {&ops::kOp_exp, Unary<ops::ComplexExp>},
    {&ops::kOp_expm1, Unary<ops::ComplexExpm1>},
    {&ops::kOp_log, Unary<ops::ComplexLog>},
    {&ops::kOp_log1p, Unary<ops::ComplexLog1p>},
    {&ops::kOp_sqrt, Unary<ops::ComplexSqrt>},
    {&ops::kOp_rsqrt, Unary<ops::ComplexRsqrt>},
    {&ops::kOp_sin, Unary<ops::ComplexSin>},
    {&ops::kOp_cos, Unary<ops::ComplexCos>},
    {&ops::kOp_tan, Unary<ops::ComplexTan>},
    {&ops::kOp_tanh, Unary<ops::ComplexTanh>},
    {&ops::kOp_sigmoid, Unary<ops::ComplexSigmoid>},
    {&ops::kOp_compare, Compare},
    {&ops::kOp_convert, Convert},
    {&ops::kOp_complex, Complex},
    {&ops::kOp_real, RealPart},
    {&ops::kOp_imag, ImaginaryPart},
    {&ops::kOp_constant, Constant},
    {&ops::kOp_iota, Iota},
    {&ops::kOp_dot_general, Product},
    {&ops::kOp_convolution, Product},
    {&ops::kOp_reduce, Reduce},
    {&ops::kOp_reduce_window, ReduceWindow},
    {&ops::kOp_scatter, Scatter},
    {&ops::kOp_sort_by, SortBy},
    {&ops::kOp_reduce_by, InPlace},
    {&ops::kOp_reduce_window_by, InPlace},
    {&ops::kOp_scatter_by, InPlace},
    {&ops::kOp_optimization_barrier, InPlace},
    {&ops::kOp_while, InPlace},
    {&ops::kOp_case, InPlace},
    {&ops::kOp_call, InPlace},
};

Rule FindRule(const ir::OpDef& op) {
  for (const OpRule& each : kRules) {
    if (each.op == &op) return each.rule;
  }
  return nullptr;
}

bool TouchesComplex(const Node& node) {
  if (node.op().lowering == ir::Lowering::kPlanes) return true;
  for (const ir::Type& type : node.results()) {
    if (IsComplexType(type)) return true;
  }
  for (const Value& operand : node.operands()) {
    if (operand && IsComplexType(operand.type())) return true;
  }
  return false;
}

// --- Edges: f32[…, 2], or [elements, 2] where one dimension more would be too many.

Ints ViewShape(const ir::Type& type) {
  Ints shape(type.dims.begin(), type.dims.end());
  if (shape.size() == kMaxRank) shape = {type.count()};
  shape.push_back(2);
  return shape;
}

Planes FromMemory(Builder& b, const Value& x) {
  const Ints shape = ViewShape(x.type());
  const Value view = b.Emit(ops::kOp_view_as_real, {x}, {shape});
  const auto plane = [&](int64_t part) {
    Ints start(shape.size(), 0), limit = shape;
    start.back() = part;
    limit.back() = part + 1;
    return ops::Reshape(b, ops::Slice(b, view, start, limit, Ints(shape.size(), 1)), x.dims());
  };
  return {plane(0), plane(1)};
}

Value ToMemory(Builder& b, const Planes& x, const ir::Type& type) {
  Ints shape = ViewShape(type);
  shape.back() = 1;
  const auto axis = static_cast<int64_t>(shape.size()) - 1;
  const Dims dims = ops::ToDims(shape);
  const Value both =
      ops::Call(b, ops::kOp_concatenate, {ops::Reshape(b, x.re, dims), ops::Reshape(b, x.im, dims)}, {axis});
  return b.Emit(ops::kOp_view_as_complex, {both}, {ops::ToInts(type.dims)});
}

class Splitter {
 public:
  absl::StatusOr<Ref<const Function>> Main(const Function& function) {
    for (const Function* each : ir::CalleesFirst(function)) {
      if (each == &function || carried_.contains(each)) continue;
      WEFT_ASSIGN_OR_RETURN(Ref<const Function> split, One(*each, false));
      carried_.emplace(each, std::move(split));
    }
    return One(function, true);
  }

 private:
  using Map = HashMap<Value, Split>;

  absl::StatusOr<Ref<const Function>> One(const Function& function, bool edge);
  absl::Status Add(const Function& function, const Node& node, Builder& b, Map& map, bool* changed);

  HashMap<const Function*, Ref<const Function>> carried_;
};

absl::Status Splitter::Add(const Function& function, const Node& node, Builder& b, Map& map, bool* changed) {
  std::vector<Ref<const Function>> regions;
  bool same = true;
  for (const Ref<const Function>& region : node.regions()) {
    regions.push_back(carried_.at(region.get()));
    same = same && regions.back() == region;
  }
  Splits operands;
  Values whole;
  for (const Value& operand : node.operands()) {
    operands.push_back(operand ? map.at(operand) : Split());
    whole.push_back(operands.back().whole);
  }
  b.set_location(node.location());
  Splits results;
  if (same && !TouchesComplex(node)) {
    const Ref<const Node> kept = ir::WithOperands(node, whole, regions);
    for (uint32_t i = 0; i < node.results().size(); ++i) results.push_back({Value{kept, i}, {}});
  } else {
    *changed = true;
    const Rule rule = FindRule(node.op());
    if (rule == nullptr) {
      return InternalError("no rule says what ", node.op().name, " of complex values is in @", function.name());
    }
    results = rule({b, node, operands, regions});
    WEFT_RETURN_IF_ERROR(b.status());
  }
  for (uint32_t i = 0; i < results.size(); ++i) map[Value{Ref<const Node>::Share(&node), i}] = std::move(results[i]);
  return absl::OkStatus();
}

absl::StatusOr<Ref<const Function>> Splitter::One(const Function& function, bool edge) {
  Map map;
  Builder b;
  bool changed = false;
  std::vector<Value> parameters, results;
  for (const Value& p : function.parameters()) {
    Split split{p, {}};
    if (IsComplexType(p.type())) {
      changed = true;
      split.whole = {};
      if (edge) {
        split.planes = FromMemory(b, p);
        parameters.push_back(p);
      } else {
        const ir::Type part = ir::Type::Tensor(PartOf(p.dtype()), p.dims());
        for (Value* plane : {&split.planes.re, &split.planes.im}) {
          *plane = {Node::Create(ops::kOp_parameter, {}, {}, {part}), 0};
          parameters.push_back(*plane);
        }
      }
    } else {
      parameters.push_back(p);
    }
    map[p] = std::move(split);
  }
  for (const Node* node : function.nodes().subspan(function.parameters().size())) {
    WEFT_RETURN_IF_ERROR(Add(function, *node, b, map, &changed));
  }
  if (!changed) return Ref<const Function>::Share(&function);
  for (const Value& result : function.results()) {
    const Split& split = map.at(result);
    if (!split.complex()) {
      results.push_back(split.whole);
    } else if (edge) {
      results.push_back(ToMemory(b, split.planes, result.type()));
    } else {
      results.push_back(split.planes.re);
      results.push_back(split.planes.im);
    }
  }
  WEFT_RETURN_IF_ERROR(b.status());
  std::vector<ir::ParameterInfo> infos;
  if (edge) infos.assign(function.parameter_infos().begin(), function.parameter_infos().end());
  return Function::Create(function.name(), std::move(parameters), std::move(results), std::move(infos));
}

}  // namespace

absl::StatusOr<ir::Module> SplitComplex(const ir::Module& module, const PipelineOptions& options) {
  bool any = false;
  for (const Ref<const Function>& function : module.functions) any = any || HasComplex(*function);
  if (!any) return module;
  // What a backend claims it claims of real values.
  PipelineOptions expanded = options;
  expanded.claims = [](const Node& node) {
    if (FindRule(node.op()) != nullptr) return true;
    if (TouchesComplex(node)) return false;
    for (const Ref<const Function>& region : node.regions()) {
      if (HasComplex(*region)) return false;
    }
    return true;
  };
  WEFT_ASSIGN_OR_RETURN(ir::Module result, ExpandComposites(module, expanded));
  Splitter splitter;
  for (Ref<const Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, splitter.Main(*function));
  }
  return result;
}

}  // namespace weft::passes
