// roll: elements moved along axes, what leaves at one end comes in at the other.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"shifts", AttrType::kInts, "how many places to the end, of each axis; negative: to the beginning", true},
    {"dims", AttrType::kInts, "the axes, negative ones count from the end; absent: x as one row, by one shift"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const size_t shifts = Attr<kAttrs, "shifts">(call.attrs).size();
  size_t axes = 1;
  if (HasAttr<kAttrs, "dims">(call.attrs)) {
    axes = Attr<kAttrs, "dims">(call.attrs).size();
    for (const int64_t axis : Attr<kAttrs, "dims">(call.attrs))
      WEFT_RETURN_IF_ERROR(NormalizeAxis("dims", axis, x.rank()).status());
  }
  if (shifts != axes) return UserError("there are ", shifts, " shifts for ", axes, " axes");
  results->push_back(x);
  return absl::OkStatus();
}

Value Rolled(Builder& b, const Value& x, int64_t axis, int64_t shift) {
  if (!b.ok()) return {};
  const int64_t n = x.dims()[axis];
  if (n == 0 || shift % n == 0) return x;
  Ints begin(x.dims().size(), 0), middle = begin, end = ToInts(x.dims()), cut = end;
  middle[axis] = cut[axis] = (n - shift % n) % n;
  const Ints ones(x.dims().size(), 1);
  return Call(b, kOp_concatenate, {Slice(b, x, middle, end, ones), Slice(b, x, begin, cut, ones)}, {axis});
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Value x = call.operands[0];
  const Dims dims = x.dims();
  const Ints& shifts = Attr<kAttrs, "shifts">(call.attrs);
  if (HasAttr<kAttrs, "dims">(call.attrs)) {
    for (size_t i = 0; i < shifts.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                            NormalizeAxis("dims", Attr<kAttrs, "dims">(call.attrs)[i], dims.size()));
      x = Rolled(call.b, x, axis, shifts[i]);
    }
  } else {
    x = Reshape(call.b, Rolled(call.b, Reshape(call.b, x, {CountOf(dims)}), 0, shifts[0]), dims);
  }
  results[0] = x;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[7] shifts=[2]"},
                               {"T[3,5] shifts=[-1] dims=[1]"},
                               {"T[2,4,3] shifts=[5,1] dims=[1,-1]"},
                               {"T[0,3] shifts=[1] dims=[0]"},
                               {"T[2,3] shifts=[-4]"},
                               {"T[] shifts=[3]"}};

}  // namespace

constinit const OpDef kOp_roll = {
    .name = "weft.roll",
    .c_name = "roll",
    .since = 1,
    .kind = Kind::kMacro,
    .doc = "Moves the elements along axes by so many places; what leaves at one end comes in at the other.",
    .example = "y = wf_roll(s, x, WF_INTS(1), .dims = WF_INTS(0));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
