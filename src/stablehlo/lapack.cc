// JAX's calls of LAPACK on CPUs, custom_call @lapack_dgetrf_ffi and its kin, as operations, and the call that Weft itself writes. How their matrices lie in memory is said
// beside them and changes no element. A matrix without an answer has NaN already, so that `info` is 0.
#include "src/ops/linalg/factors.h"
#include "src/stablehlo/rules.h"

namespace weft::stablehlo {
namespace {

using ir::StableHloOp;
using ir::Value;
using ir::Values;

// A call's operands and results, counted, and its letters, which are numbers in the configuration.
class Call {
 public:
  Call(StableHloOp& op, size_t operands, size_t results) : op(op) {
    op.Understand({"call_target_name", "backend_config", "mhlo.backend_config", "api_version", "operand_layouts",
                   "result_layouts", "output_operand_aliases", "mhlo.frontend_attributes", "sdy.sharding_rule"});
    config_ = op.Find("mhlo.backend_config");
    if (config_ == nullptr || config_->kind != ir::ShloAttr::Kind::kFields) config_ = op.Find("backend_config");
    counted_ = op.operands.size() == operands && op.results.size() == results;
    if (counted_) return;
    op.b.Fail(UserError(op.operands.size(), " operands and ", op.results.size(), " results; ", operands, " and ",
                        results, " are expected"));
  }
  explicit operator bool() const { return counted_; }
  char Letter(std::string_view name) const {
    const ir::ShloAttr* found = config_ == nullptr ? nullptr : config_->Find(name);
    return found == nullptr || found->kind != ir::ShloAttr::Kind::kInt ? '?' : static_cast<char>(found->integer);
  }
  // Tells whether the letter is the one that says yes; INVALID_ARGUMENT where it is neither.
  bool Is(std::string_view name, char yes, char no) const {
    const char letter = Letter(name);
    if (letter != yes && letter != no)
      op.b.Fail(UserError(name, " must be '", std::string(1, yes), "' or '", std::string(1, no), "'"));
    return letter == yes;
  }
  // Zeros of the type of a result: `info`, and what nobody asked for.
  Value Zeros(size_t result) const { return ops::Full(op.b, op.results[result].dtype, op.results[result].dims, 0); }
  const Value& x() const { return op.operands[0]; }

  StableHloOp& op;

 private:
  const ir::ShloAttr* config_ = nullptr;
  bool counted_ = false;
};

Values ReadPotrf(StableHloOp& op) {
  const Call call(op, 1, 2);
  if (!call) return {};
  return {ops::Call(op.b, ops::kOp_cholesky, {call.x()}, {int64_t{call.Is("uplo", 'L', 'U')}}), call.Zeros(1)};
}

Values ReadGetrf(StableHloOp& op) {
  const Call call(op, 1, 3);
  if (!call) return {};
  const Values found = ops::CallAll(op.b, ops::kOp_lu, {call.x()});
  if (!op.b.ok()) return {};
  return {found[0], ops::Add(op.b, found[1], 1.0), call.Zeros(2)};  // Fortran counts from 1
}

Values ReadGeqrf(StableHloOp& op) {
  const Call call(op, 1, 2);
  if (!call) return {};
  return ops::Factors(op.b, linalg::Kind::kReflectors, 0, op.operands);
}

Values ReadOrgqr(StableHloOp& op) {
  const Call call(op, 2, 1);
  if (!call) return {};
  return {ops::Call(op.b, ops::kOp_householder_product, {call.x(), op.operands[1]})};
}

Values ReadSyevd(StableHloOp& op) {
  const Call call(op, 1, 3);
  if (!call) return {};
  const int64_t lower = call.Is("uplo", 'L', 'U');
  if (!call.Is("mode", 'V', 'N')) {
    return {call.x(), ops::Call(op.b, ops::kOp_eigvalsh, {call.x()}, {lower}), call.Zeros(2)};
  }
  const Values found = ops::CallAll(op.b, ops::kOp_eigh, {call.x()}, {lower});
  return op.b.ok() ? Values{found[1], found[0], call.Zeros(2)} : Values();
}

Values ReadGesdd(StableHloOp& op) {
  const Call call(op, 1, 5);
  if (!call) return {};
  const char mode = call.Letter("mode");
  if (mode == 'N') {
    return {call.x(), ops::Call(op.b, ops::kOp_svdvals, {call.x()}), call.Zeros(2), call.Zeros(3), call.Zeros(4)};
  }
  if (mode != 'A' && mode != 'S') return op.Refuse("mode must be 'A', 'S' or 'N'");
  const Values found = ops::CallAll(op.b, ops::kOp_svd, {call.x()}, {int64_t{mode == 'A'}});
  return op.b.ok() ? Values{call.x(), found[1], found[0], found[2], call.Zeros(4)} : Values();
}

Values ReadGeev(StableHloOp& op) {
  const bool real = !op.operands.empty() && !IsComplex(op.operands[0].dtype());
  const size_t values = real ? 2 : 1;
  const Call call(op, 1, values + 3);
  if (!call) return {};
  if (call.Is("compute_left", 'V', 'N')) return op.Refuse("left eigenvectors");
  const bool right = call.Is("compute_right", 'V', 'N');
  const Values found = ops::CallAll(op.b, right ? ops::kOp_eig : ops::kOp_eigvals, {call.x()});
  if (!op.b.ok()) return {};
  Values results = {found[0]};
  if (real) results = {ops::Unary(op.b, ops::kOp_real, found[0]), ops::Unary(op.b, ops::kOp_imag, found[0])};
  results.push_back(call.Zeros(values));
  results.push_back(right ? found[1] : call.Zeros(values + 1));
  results.push_back(call.Zeros(values + 2));
  return results;
}

Values ReadTrsm(StableHloOp& op) {
  const Call call(op, 2, 1);
  if (!call) return {};
  const char turned = call.Letter("trans_x");
  if (turned != 'N' && turned != 'T' && turned != 'C') return op.Refuse("trans_x must be 'N', 'T' or 'C'");
  const auto how = turned == 'N'   ? ops::Transposition::kNone
                   : turned == 'T' ? ops::Transposition::kTranspose
                                   : ops::Transposition::kAdjoint;
  return {ops::Call(op.b, ops::kOp_triangular_solve, {call.x(), op.operands[1]},
                    {int64_t{call.Is("side", 'L', 'R')}, int64_t{call.Is("uplo", 'L', 'U')},
                     int64_t{call.Is("diag", 'U', 'N')}, static_cast<int64_t>(how)})};
}

// The call that the writer makes of matrix_factors.
Values ReadMatrixFactors(StableHloOp& op) {
  op.Understand({"call_target_name", "api_version", "backend_config"});
  const ir::ShloAttr* const how = op.Find("backend_config");
  const auto number = [&](std::string_view name) -> const ir::ShloAttr* {
    const ir::ShloAttr* found = how == nullptr || how->kind != ir::ShloAttr::Kind::kFields ? nullptr : how->Find(name);
    return found == nullptr || found->kind != ir::ShloAttr::Kind::kInt ? nullptr : found;
  };
  const ir::ShloAttr *kind = number("kind"), *mode = number("mode");
  if (kind == nullptr || mode == nullptr) return op.Refuse("backend_config must have the integers kind and mode");
  return ops::CallAll(op.b, ops::kOp_matrix_factors, op.operands, {kind->integer, mode->integer});
}

#define WEFT_FOUR(name, read)                                                                                   \
  {"stablehlo.custom_call @lapack_s" name "_ffi", read}, {"stablehlo.custom_call @lapack_d" name "_ffi", read}, \
      {"stablehlo.custom_call @lapack_c" name "_ffi", read}, {                                                  \
    "stablehlo.custom_call @lapack_z" name "_ffi", read                                                         \
  }
constexpr Rule kLapack[] = {
    WEFT_FOUR("potrf", ReadPotrf),
    WEFT_FOUR("getrf", ReadGetrf),
    WEFT_FOUR("geqrf", ReadGeqrf),
    WEFT_FOUR("gesdd", ReadGesdd),
    WEFT_FOUR("geev", ReadGeev),
    WEFT_FOUR("trsm", ReadTrsm),
    {"stablehlo.custom_call @lapack_sorgqr_ffi", ReadOrgqr},
    {"stablehlo.custom_call @lapack_dorgqr_ffi", ReadOrgqr},
    {"stablehlo.custom_call @lapack_cungqr_ffi", ReadOrgqr},
    {"stablehlo.custom_call @lapack_zungqr_ffi", ReadOrgqr},
    {"stablehlo.custom_call @lapack_ssyevd_ffi", ReadSyevd},
    {"stablehlo.custom_call @lapack_dsyevd_ffi", ReadSyevd},
    {"stablehlo.custom_call @lapack_cheevd_ffi", ReadSyevd},
    {"stablehlo.custom_call @lapack_zheevd_ffi", ReadSyevd},
    {"stablehlo.custom_call @weft.matrix_factors", ReadMatrixFactors},
};
#undef WEFT_FOUR

}  // namespace

std::span<const Rule> LapackRules() { return kLapack; }

}  // namespace weft::stablehlo
