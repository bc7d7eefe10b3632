// StableHLO's all_gather, all_reduce, all_to_all, collective_broadcast, reduce_scatter. Shapes follow from the size of a
// group. In a program of one process each gives back what it is given.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ir/stablehlo_read.h"
#include "src/ops/batching.h"
#include "src/ops/collective/processes.h"
#include "src/ops/families.h"
#include "src/ops/nan.h"
#include "src/ops/reducer.h"
#include "src/ops/scalar_function.h"
#include "src/runtime/hash_map.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kMany[] = {
    {.name = "operands", .types = kAnyType, .doc = "this process's share", .variadic = true, .group = 0}};
constexpr OperandDef kOne[] = {{"operand", kAnyType, "this process's share"}};
constexpr std::string_view kResults[] = {"results"};

constexpr AttrDef kGroups = {"replica_groups", AttrType::kLiteral,
                             "i64 [groups, size]: processes that work together; -1 fills up", true};
constexpr AttrDef kHandle = {"handle", AttrType::kInt, "of the channel; absent or 0: none"};
constexpr AttrDef kType = {"type", AttrType::kInt, "of the channel"};
constexpr AttrDef kGlobal = {"use_global_device_ids", AttrType::kBool, "groups name devices, not replicas", false,
                             "false"};
constexpr AttrDef kReducer = {"reducer", AttrType::kEnum, "what shares are combined with", true, {}, kReducerNames};
constexpr AttrDef kGatherAttrs[] = {
    {"all_gather_dim", AttrType::kInt, "along which shares are put together", true}, kGroups, kHandle, kType, kGlobal};
constexpr AttrDef kReduceAttrs[] = {kGroups, kReducer, kHandle, kType, kGlobal};
constexpr AttrDef kToAllAttrs[] = {
    {"split_dimension", AttrType::kInt, "along which each share is cut", true},
    {"concat_dimension", AttrType::kInt, "along which the pieces are put together", true},
    {"split_count", AttrType::kInt, "pieces: the size of a group", true},
    kGroups,
    kHandle,
    kType};
constexpr AttrDef kBroadcastAttrs[] = {kGroups, kHandle, kType};
constexpr AttrDef kScatterAttrs[] = {
    {"scatter_dimension", AttrType::kInt, "along which the result is shared out", true},
    kGroups,
    kReducer,
    kHandle,
    kType,
    kGlobal};

// The positions of attributes that several have.
size_t PositionOf(const OpDef& op, std::string_view name) {
  const auto found = std::ranges::find(op.attrs, name, &AttrDef::name);
  return static_cast<size_t>(found - op.attrs.begin());
}

// How many processes work together: as many in every group, each process in one at most. Filled-up places do not count;
// without groups a process is alone, or all are one group (see processes.h).
absl::Status SizeOfGroups(const HostTensor& groups, int64_t* size) {
  if (groups.dtype() != DType::kI64 || groups.dims().size() != 2) {
    return UserError("replica_groups is ", ShortType(Type::Tensor(groups.dtype(), groups.dims())),
                     "; it must be i64 [groups, size]");
  }
  *size = 0;
  HashMap<int64_t, int64_t> times;
  const int64_t width = groups.dims()[1];
  for (int64_t row = 0; row < groups.dims()[0]; ++row) {
    int64_t members = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      const int64_t process = groups.GetInt(i);
      if (process == -1) continue;
      ++members;
      ++times[process];
    }
    if (members == 0) continue;
    if (*size != 0 && members != *size) {
      return UserError("replica_groups has groups of ", *size, " and of ", members,
                       " processes; all must have the same size");
    }
    *size = members;
  }
  for (int64_t i = 0; i < groups.count(); ++i) {
    const int64_t process = groups.GetInt(i);
    if (process != -1 && times[process] > 1) {
      return UserError("replica_groups names process ", process, " ", times[process], " times");
    }
  }
  *size = std::max<int64_t>(*size, 1);
  return absl::OkStatus();
}

absl::Status CheckDimension(const InferCall& call, std::string_view name) {
  const int64_t d = call.attrs.Int(PositionOf(call.op, name));
  for (const Type* x : call.operands) {
    if (d >= 0 && d < static_cast<int64_t>(x->rank())) continue;
    return UserError(name, " is ", d, "; the operand ", ShortType(*x), " has rank ", x->rank());
  }
  return absl::OkStatus();
}

// Changes the type of one process's share to that of its result in groups of this size.
absl::Status Resize(const InferCall& call, int64_t size, Type* x) {
  const auto dimension = [&](std::string_view name) {
    const size_t at = PositionOf(call.op, name);
    return at < call.op.attrs.size() ? &x->dims[static_cast<size_t>(call.attrs.Int(at))] : nullptr;
  };
  for (std::string_view name : {"split_dimension", "scatter_dimension"}) {
    int64_t* const dim = dimension(name);
    if (dim == nullptr) continue;
    if (*dim % size != 0) {
      return UserError(name, " has ", *dim, " elements, which ", size, " processes cannot share out evenly");
    }
    *dim /= size;
  }
  for (std::string_view name : {"all_gather_dim", "concat_dimension"}) {
    int64_t* const dim = dimension(name);
    if (dim == nullptr) continue;
    if (*dim > INT64_MAX / size) return UserError(name, " of ", size, " shares has too many elements");
    *dim *= size;
  }
  if (!CheckedCount(x->dims).has_value()) return UserError("the shares of ", size, " processes have too many elements");
  return absl::OkStatus();
}

absl::Status InferOwn(const InferCall& call, Types* results) {
  int64_t size = 1;
  WEFT_RETURN_IF_ERROR(SizeOfGroups(call.attrs.Tensor(PositionOf(call.op, "replica_groups")), &size));
  for (std::string_view name : {"all_gather_dim", "split_dimension", "concat_dimension", "scatter_dimension"}) {
    if (PositionOf(call.op, name) < call.op.attrs.size()) WEFT_RETURN_IF_ERROR(CheckDimension(call, name));
  }
  if (const size_t count = PositionOf(call.op, "split_count"); count < call.op.attrs.size()) {
    if (call.attrs.Int(count) != size) {
      return UserError("split_count is ", call.attrs.Int(count), "; it must be ", size, ", the size of the group");
    }
  }
  if (const size_t at = PositionOf(call.op, "reducer"); at < call.op.attrs.size()) {
    const auto reducer = static_cast<Reducer>(call.attrs.Int(at));
    for (const Type* x : call.operands) {
      if ((reducer == Reducer::kAnd || reducer == Reducer::kOr) && IsFloat(x->dtype)) {
        return UserError("reducer ", kReducerNames[call.attrs.Int(at)], " takes integers or bool, not ",
                         NameOf(x->dtype));
      }
    }
  }
  for (const Type* x : call.operands) {
    Type type = *x;
    WEFT_RETURN_IF_ERROR(Resize(call, size, &type));
    results->push_back(std::move(type));
  }
  return absl::OkStatus();
}

// Expands a collective of a program of one process. In programs of several none is expanded.
absl::Status ExpandOwn(const ExpandCall& call, std::span<Value> results) {
  WEFT_RETURN_IF_ERROR(CheckProcesses(call.op, call.attrs, 1));
  std::ranges::copy(call.operands.first(results.size()), results.begin());
  return absl::OkStatus();
}

absl::Status ExpandBroadcast(const ExpandCall& call, std::span<Value> results) {
  WEFT_RETURN_IF_ERROR(CheckProcesses(call.op, call.attrs, 1));
  const HostTensor& groups = call.attrs.Tensor(PositionOf(call.op, "replica_groups"));
  // No groups at all: one of all processes.
  bool member = groups.count() == 0;
  for (int64_t i = 0; i < groups.count(); ++i) member = member || groups.GetInt(i) == 0;
  results[0] = member ? call.operands[0] : FullLike(call.b, call.operands[0], 0);
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  ShloAttrs attrs;
  std::string region;
  for (size_t i = 0; i < node.op().attrs.size(); ++i) {
    const AttrDef& def = node.op().attrs[i];
    if (def.name == "handle") {
      if (std::string channel = ChannelOf(node, writer); !channel.empty()) {
        attrs.emplace_back("channel_handle", std::move(channel));
      }
      continue;
    }
    if (!a.has(i) || def.name == "type") continue;
    if (def.type == AttrType::kLiteral) {
      attrs.emplace_back(def.name, ShloDense(a.Tensor(i)));
    } else if (def.type == AttrType::kEnum) {
      const auto reducer = static_cast<Reducer>(a.Int(i));
      region = writer.Reducer(StableHloOf(reducer), node.operands()[0].dtype());
    } else if (def.type == AttrType::kInt) {
      attrs.emplace_back(def.name, ShloI64(a.Int(i)));
    } else if (a.Bool(i) || NamesDevices(writer.participants())) {
      attrs.emplace_back(def.name, "unit");
    }
  }
  writer.Emit(node.op().name, std::move(attrs), region);
}

// A computation is one of the plain reducers: of one process none runs, whatever it is, but it must be kept.
Values Read(StableHloOp& op) {
  Attrs attrs = op.SchemaAttrs();
  if (const size_t at = PositionOf(*op.op, "reducer"); at < op.op->attrs.size()) {
    if (op.regions.size() != 1) return op.Refuse(op.regions.size(), " functions; one is expected");
    const std::optional<Reducer> plain = PlainReducer(*op.regions[0].function);
    if (!plain) return op.Refuse("its function is none of add, multiply, maximum, minimum, and, or");
    attrs.set(at, static_cast<int64_t>(*plain));
  }
  return CallAll(op.b, *op.op, op.operands, std::move(attrs));
}

// The gradient of a maximum or minimum: equal extremes of a group share it; NaN is no extreme, and all get it (as reduce
// has it, and with no infinite factor, as there).
Value ExtremeGradient(Builder& b, const Value& x, const Value& y, const Value& g, const Attrs& sums) {
  const Value nan = IsNan(b, y), won = Either(b, Compare(b, Direction::kEq, x, y), nan), zero = FullLike(b, x, 0);
  const Value count = Call(b, kOp_all_reduce, {Select(b, won, FullLike(b, x, 1), zero)}, sums);
  return Select(b, nan, Mul(b, g, Select(b, nan, y, zero)), Select(b, won, Div(b, g, count), zero));
}

// Each process's cotangent is of its own result: what a share has done for others, their cotangents say.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const OpDef& op = call.node.op();
  const Attrs& a = call.node.attrs();
  const HostTensor& groups = a.Tensor(PositionOf(op, "replica_groups"));
  const auto literal = [&] { return AttrValue(Ref<const Literal>(MakeRef<Literal>(HostTensor(groups)))); };
  const Attrs sums = {literal(), static_cast<int64_t>(Reducer::kSum)};
  const size_t at = PositionOf(op, "reducer");
  const Reducer reducer = at < op.attrs.size() ? static_cast<Reducer>(a.Int(at)) : Reducer::kSum;
  const bool extreme = reducer == Reducer::kMax || reducer == Reducer::kMin;
  const bool several = groups.dims().size() != 2 || groups.dims()[1] != 1;
  if (reducer != Reducer::kSum && !extreme && several) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, op.name, " by ", kReducerNames[a.Int(at)],
                       " has no gradient; sums, maxima and minima have");
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    Value g = call.cotangents[i];
    if (!call.wanted[i] || !g) continue;
    Builder& b = call.b;
    Value y = call.results[i];
    if (&op == &kOp_all_gather) {
      grads[i] = Call(b, kOp_reduce_scatter, {g}, {a.Int(0), literal(), static_cast<int64_t>(Reducer::kSum)});
    } else if (&op == &kOp_all_to_all) {
      Attrs back = a;
      back.set(0, a.Int(1));
      back.set(1, a.Int(0));
      grads[i] = Call(b, op, {g}, std::move(back));
    } else if (&op == &kOp_reduce_scatter) {
      grads[i] = Call(b, kOp_all_gather, {g}, {a.Int(0), literal()});
      if (extreme) y = Call(b, kOp_all_gather, {y}, {a.Int(0), literal()});
    } else {
      grads[i] = Call(b, kOp_all_reduce, {g}, sums);
    }
    if (extreme) grads[i] = ExtremeGradient(b, call.operands[i], Unary(b, kOp_stop_gradient, y), grads[i], sums);
  }
  return absl::OkStatus();
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  Attrs attrs = call.node.attrs();
  for (size_t i = 0; i < call.node.op().attrs.size(); ++i) {
    const std::string_view name = call.node.op().attrs[i].name;
    if (name.ends_with("_dim") || name.ends_with("_dimension")) attrs.set(i, attrs.Int(i) + 1);
  }
  for (size_t i = 0; i < results.size(); ++i) results[i] = Call(call.b, call.node.op(), {Batched(call, i)}, attrs);
  return absl::OkStatus();
}

#define WEFT_ALONE " replica_groups=i64[1,1]{0}"
constexpr Sample kGatherSamples[] = {{"T[2,3] all_gather_dim=1" WEFT_ALONE}, {"T[131] all_gather_dim=0" WEFT_ALONE}};
constexpr Sample kReduceSamples[] = {{"T[2,3]" WEFT_ALONE " reducer=sum"}, {"T[131]" WEFT_ALONE " reducer=max"}};
constexpr Sample kToAllSamples[] = {{"T[2,3] split_dimension=1 concat_dimension=0 split_count=1" WEFT_ALONE},
                                    {"T[131] split_dimension=0 concat_dimension=0 split_count=1" WEFT_ALONE}};
constexpr Sample kBroadcastSamples[] = {{"T[2,3]" WEFT_ALONE}, {"T[0]" WEFT_ALONE}};
constexpr Sample kScatterSamples[] = {{"T[2,3] scatter_dimension=0" WEFT_ALONE " reducer=sum"},
                                      {"T[131] scatter_dimension=0" WEFT_ALONE " reducer=min"}};
#undef WEFT_ALONE

constexpr Absent kHasGradient[] = {{Part::kReference, Reason::kExpands}, {Part::kExample, Reason::kFromStableHlo}};

// Members differ by their attributes alone.
constexpr OpDef Collective(std::string_view name, std::string_view doc, std::span<const OperandDef> operands,
                           std::span<const AttrDef> attrs, ExpandFn expand, std::span<const Sample> samples,
                           GradFn gradient = Gradient) {
  return {.name = name,
          .c_name = name,
          .kind = Kind::kComposite,
          .doc = doc,
          .operands = operands,
          .attrs = attrs,
          .results = kResults,
          .infer = InferOwn,
          .gradient = gradient,
          .expand = expand,
          .batching = Batching,
          .lowering = Lowering::kExpand,
          .stablehlo = StableHlo,
          .read = Read,
          .samples = samples,
          .tolerance = kExact,
          .absent = gradient != nullptr ? std::span<const Absent>(kHasGradient) : kStableHloComposite,
          .exported = false,
          .rounds_once = true};
}

}  // namespace

constinit const OpDef kOp_all_gather =
    Collective("all_gather", "The shares of a group's processes side by side. One process has all: the operands.",
               kMany, kGatherAttrs, ExpandOwn, kGatherSamples);
constinit const OpDef kOp_all_reduce =
    Collective("all_reduce", "The shares of a group's processes combined. One process has all: the operands.", kMany,
               kReduceAttrs, ExpandOwn, kReduceSamples);
constinit const OpDef kOp_all_to_all =
    Collective("all_to_all", "A piece of each process's share. One process has all: the operands.", kMany, kToAllAttrs,
               ExpandOwn, kToAllSamples);
constinit const OpDef kOp_collective_broadcast =
    Collective("collective_broadcast", "The share of a group's first process; zeros for who is in no group.", kOne,
               kBroadcastAttrs, ExpandBroadcast, kBroadcastSamples, nullptr);
constinit const OpDef kOp_reduce_scatter =
    Collective("reduce_scatter", "This process's piece of the shares combined. One process has all: the operand.", kOne,
               kScatterAttrs, ExpandOwn, kScatterSamples);

}  // namespace weft::ops
