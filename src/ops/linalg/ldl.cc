// ldl and ldl_solve: symmetric and hermitian matrices, which need not be definite, as products of triangles and of blocks of one
// and two rows.
#include <algorithm>

#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kResults[] = {"ld", "pivots"};
constexpr AttrDef kAttrs[] = {
    {"hermitian", AttrType::kBool, "complex matrices are hermitian; else they are symmetric", false, "false"}};
constexpr OperandDef kFactored[] = {{"ld", kF | kC, "[..., n, n], ldl's first result"},
                                    {"pivots", kI, "[..., n], ldl's second result", false, false, 'I'},
                                    {"b", kF | kC, "[..., n, k]"}};

int64_t ModeOf(const Attrs& attrs) { return Attr<kAttrs, "hermitian">(attrs) ? linalg::kHermitian : 0; }

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckSquare("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  results->push_back(x);
  results->push_back(Stacked(x, DType::kI32, {x.dims.back()}));
  return absl::OkStatus();
}
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  std::ranges::move(Factors(call.b, linalg::Kind::kLdl, ModeOf(call.attrs), call.operands.first(1)), results.begin());
  return call.b.status();
}
// 0 would be a wrong number.
absl::Status Gradient(const GradCall&, std::span<Value>) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "ldl's factors have no gradient; solve, det and eigh have one");
}

absl::Status InferSolve(const InferCall& call, Types* results) {
  const Type &ld = *call.operands[0], &pivots = *call.operands[1], &b = *call.operands[2];
  WEFT_RETURN_IF_ERROR(CheckSquare("ld", ld));
  WEFT_RETURN_IF_ERROR(CheckSize("ld", ld));
  WEFT_RETURN_IF_ERROR(CheckMatrix("b", b));
  WEFT_RETURN_IF_ERROR(CheckSize("b", b));
  if (b.rank() != ld.rank() || !std::equal(ld.dims.begin(), ld.dims.end() - 1, b.dims.begin())) {
    return UserError("ld is ", ShortType(ld), " and b ", ShortType(b), "; all dimensions but the last must be equal");
  }
  if (!std::ranges::equal(pivots.dims, std::span(ld.dims).first(ld.rank() - 1))) {
    return UserError("pivots are ", ShortType(pivots), "; of ld, ", ShortType(ld),
                     ", they have all dimensions but the last");
  }
  results->push_back(b);
  return absl::OkStatus();
}
absl::Status ExpandSolve(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &ld = call.operands[0], &pivots = call.operands[1], &right = call.operands[2];
  Dims column = pivots.dims();
  column.push_back(1);
  const DType part = PartOf(ld.dtype()) == DType::kF64 ? DType::kF64 : DType::kF32;
  const Value operands[] = {ld, right, Convert(b, Reshape(b, pivots, column), part)};
  std::ranges::move(Factors(b, linalg::Kind::kLdlSolve, ModeOf(call.attrs), operands), results.begin());
  return b.status();
}
// The transpose of a symmetric matrix is itself, that of a hermitian one its conjugate.
absl::Status GradientSolve(const GradCall& call, std::span<Value> grads) {
  if (call.wanted[0]) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "ldl_solve has a gradient to b alone; solve has one to a");
  }
  Builder& b = call.b;
  const bool turned = Attr<kAttrs, "hermitian">(call.node.attrs()) && IsComplex(call.operands[2].dtype());
  const Value& g = call.cotangents[0];
  const Value x = Call(b, kOp_ldl_solve, {call.operands[0], call.operands[1], turned ? Conj(b, g) : g},
                       {Attr<kAttrs, "hermitian">(call.node.attrs())});
  grads[2] = turned ? Conj(b, x) : x;
  return b.status();
}

constexpr Sample kSamples[] = {{"T[4,4]<dominant>", -2, 2, false}, {"T[2,5,5]", -2, 2, false},
                               {"T[1,1]", 0.5, 2, false},          {"T[0,0]", -2, 2, false},
                               {"c128[2,4,4]", -2, 2, false},      {"c128[4,4] hermitian=true", -2, 2, false},
                               {"T[70,70]", -2, 2, false}};
constexpr Sample kSolves[] = {{"T[3,3]<dominant> i32[3]<1:4> T[3,2]", -2, 2, false},
                              {"T[2,3,3]<dominant> i32[2,3]<3:4> T[2,3,1]", -2, 2, false},
                              {"c128[2,2] i32[2]<1:3> c128[2,3] hermitian=true", -2, 2, false},
                              {"T[0,0] i32[0] T[0,2]", -2, 2, false}};

}  // namespace

constinit const OpDef kOp_ldl = Decomposition({
    .name = "weft.ldl",
    .c_name = "ldl",
    .doc =
        "The decomposition of symmetric or hermitian matrices as LAPACK's sytrf and hetrf keep it: l, whose diagonal of ones is left "
        "out, below the diagonal; on it d, a block of two rows being beside it, too; zeros above. A pivot p above 0 says that a row, "
        "counted from 1, was exchanged with row p; two that are -p, that the second of two rows was. The lower triangle is read. A "
        "matrix with an element there that is not finite has NaN everywhere. f16 and bf16 are computed in f32. A gradient is "
        "UNIMPLEMENTED: solve, det and eigh have one.",
    .example = "f = wf_ldl(s, a);",
    .operands = kSquareOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_ldl_solve = Decomposition({
    .name = "weft.ldl_solve",
    .c_name = "ldl_solve",
    .doc =
        "Solves a x = b for x, given ldl's factors and pivots of a. Pivots that no decomposition gives make NaN. The gradient is to b; "
        "one to ld is UNIMPLEMENTED.",
    .example = "x = wf_ldl_solve(s, ld, pivots, b);",
    .operands = kFactored,
    .attrs = kAttrs,
    .infer = InferSolve,
    .gradient = GradientSolve,
    .expand = ExpandSolve,
    .samples = kSolves,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
