// convert: the same values in another element type.
#include "src/ir/differentiable.h"
#include "src/ir/stablehlo.h"
#include "src/ir/stablehlo_read.h"
#include "src/ops/build.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {{"dtype", AttrType::kDType, "element type of the result", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  if (!Contains(kEveryType, dtype)) return UserError("dtype ", NameOf(dtype), " is not an element type");
  results->push_back(Type::Tensor(dtype, call.operands[0]->dims));
  return absl::OkStatus();
}

// Nothing flows through integers. From complex to real it is the real part, the other way round the way back.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const DType from = call.operands[0].dtype();
  if (CarriesGradient(from)) grads[0] = Convert(call.b, call.cotangents[0], from);
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) { return call.b.Convert(call.operands[0], call.dtype); }

void ConvertReal(const HostTensor& x, HostTensor& y) {
  for (int64_t k = 0; k < y.count(); ++k) {
    if (IsFloat(x.dtype())) {
      y.SetDouble(k, x.GetDouble(k));
    } else if (IsFloat(y.dtype()) && x.dtype() == DType::kU64) {
      y.SetUnsigned(k, static_cast<uint64_t>(x.GetInt(k)));
    } else {
      y.SetInt(k, IsBool(y.dtype()) ? x.GetInt(k) != 0 : x.GetInt(k));
    }
  }
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  if (!IsComplex(x.dtype())) {
    ConvertReal(x, y);
  } else if (IsComplex(y.dtype())) {
    for (const int part : {0, 1}) {
      HostTensor converted(PartOf(y.dtype()), y.dims());
      ConvertReal(x.Part(part), converted);
      y.SetPart(part, converted);
    }
  } else {
    ConvertReal(x.Part(0), y);
    const HostTensor im = x.Part(1);
    for (int64_t k = 0; IsBool(y.dtype()) && k < y.count(); ++k) {
      if (im.GetDouble(k) != 0) y.SetInt(k, 1);
    }
  }
  return absl::OkStatus();
}

// StableHLO's convert of a complex number drops the imaginary part, of one to bool too: that is written out.
bool AsksBothParts(DType from, DType to) { return IsComplex(from) && IsBool(to); }

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Value& x = node.operands()[0];
  if (!AsksBothParts(x.dtype(), node.type().dtype)) return writer.Emit("convert");
  const Type part = Type::Tensor(PartOf(x.dtype()), x.dims());
  const std::string name[] = {writer.Name(x)};
  std::vector<std::string> truths;
  for (const std::string_view half : {"real", "imag"}) {
    const std::string number[] = {writer.Op(half, name, part)};
    truths.push_back(writer.Op("convert", number, node.type()));
  }
  writer.EmitOn("or", truths);
}

Values Read(StableHloOp& op) {
  if (op.operands.size() != 1 || op.results.size() != 1) return op.Refuse("one operand and one result are expected");
  Value x = op.operands[0];
  const DType to = op.results[0].dtype;
  if (AsksBothParts(x.dtype(), to)) x = Call(op.b, kOp_real, {x});
  return {Call(op.b, kOp_convert, {x}, {to})};
}

constexpr Sample kSamples[] = {{"T[2,3] dtype=f32", -2, 2, false},   {"T[5] dtype=bf16", -2, 2, false},
                               {"T[5] dtype=i32", -300, 300, false}, {"T[] dtype=f64"},
                               {"T[0,3] dtype=bool", -2, 2, false},  {"T[131] dtype=u8", -300, 300, false},
                               {"T[9] dtype=i64", -2, 2, false},     {"T[9] dtype=f16", -2, 2, false}};

// A conversion to bool tells whether the number is not 0. To other real types it drops the imaginary part, as StableHLO
// says.
Splits OnPlanes(const PlanesCall& call) {
  const DType to = call.node.type().dtype;
  const Split& x = call.operands[0];
  if (!x.complex()) return Complex(FromReal(call.b, Convert(call.b, x.whole, PartOf(to))));
  if (IsComplex(to)) {
    return Complex({Convert(call.b, x.planes.re, PartOf(to)), Convert(call.b, x.planes.im, PartOf(to))});
  }
  const Value re = Convert(call.b, x.planes.re, to);
  if (!IsBool(to)) return Real(re);
  return Real(Call(call.b, kOp_bitwise_or, {re, Convert(call.b, x.planes.im, to)}));
}

// Tells whether every value of `a` exists in `b`.
bool Holds(DType a, DType b) {
  if (a == b) return true;
  if (IsBool(b) || !IsComputable(a) || !IsComputable(b)) return false;
  if (IsBool(a)) return true;
  if (IsFloat(a)) {
    if (!IsFloat(b)) return false;
    if (BitsOf(b) == 64) return true;
    return BitsOf(b) == 32 && BitsOf(a) == 16;
  }
  if (IsFloat(b)) {
    const int mantissa = b == DType::kF64 ? 53 : b == DType::kF32 ? 24 : b == DType::kF16 ? 11 : 8;
    return BitsOf(a) - (IsSigned(a) ? 1 : 0) <= mantissa;
  }
  if (IsSigned(a)) return IsSigned(b) && BitsOf(b) > BitsOf(a);
  return BitsOf(b) > BitsOf(a);
}

Value Simpler(const SimplerCall& call) {
  const DType to = call.node.type().dtype;
  if (call.x().dtype() == to) return call.x();
  if (!call.from(kOp_convert)) return {};
  const Value& source = call.from().operands()[0];
  // Integers wrap when they narrow and floats saturate, so only a detour that keeps kind and value may go.
  const bool same_kind = IsFloat(source.dtype()) == IsFloat(call.x().dtype()) || IsFloat(to) || source.dtype() == to;
  if (!Holds(source.dtype(), call.x().dtype()) || !same_kind) return {};
  return Convert(call.b, source, to);
}

}  // namespace

constinit const OpDef kOp_convert = {
    .name = "convert",
    .c_name = "convert",
    .doc =
        "The same values in another element type. Floats round to nearest even; float to integer truncates, saturates "
        "and makes NaN 0; integers wrap; to bool is x != 0.",
    .example = "y = wf_convert(s, x, WEFT_BF16);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .samples = kSamples,
    .tolerance = {.f32 = 0, .f64 = 0, .bf16 = 8e-3, .f16 = 1e-3},
    .rounds_once = true,
    .planes = OnPlanes,
    .simpler = Simpler,
};

}  // namespace weft::ops
