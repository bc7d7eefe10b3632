// custom_call: a function of the caller's, by its name.
#include "src/ops/custom/custom_call.h"

#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ir/stablehlo_read.h"
#include "src/ops/batching.h"
#include "src/ops/control/captures.h"
#include "src/ops/families.h"
#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{.name = "operands",
                                     .types = kAnyType,
                                     .doc = "what the signature takes, in its order",
                                     .optional = true,
                                     .variadic = true,
                                     .group = 0}};
constexpr std::string_view kKinds[] = {"elements", "buffers"};
constexpr AttrDef kAttrs[] = {
    {.name = "call_target_name",
     .type = AttrType::kString,
     .doc = "under which the function is registered",
     .required = true},
    {.name = "kind",
     .type = AttrType::kEnum,
     .doc = "whether the function sees one element or whole buffers",
     .required = true,
     .enumerators = kKinds},
    {.name = "signature", .type = AttrType::kString, .doc = "its C prototype, with shapes", .required = true},
    {.name = "result_types",
     .type = AttrType::kInts,
     .doc = "of each result the dtype's number, the rank and the dimensions",
     .required = true},
    {.name = "batches",
     .type = AttrType::kBool,
     .doc = "whether it takes any number of examples in leading dimensions",
     .default_text = "false"}};
enum Position : size_t { kTarget, kKind, kSignature, kResultTypes, kBatches };
constexpr RegionDef kRegions[] = {
    {.name = "gradient",
     .doc = "none or one: operands, results and cotangents of float results in, those of float operands out",
     .variadic = true}};
constexpr std::string_view kResults[] = {"results"};
constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions}, {Part::kExample, Reason::kCarriesFunctions}};

Ints Encode(std::span<const Type> types) {
  Ints out;
  for (const Type& type : types) {
    out.push_back(static_cast<int64_t>(type.dtype));
    out.push_back(static_cast<int64_t>(type.rank()));
    out.insert(out.end(), type.dims.begin(), type.dims.end());
  }
  return out;
}

absl::StatusOr<Types> Decode(const Ints& words) {
  Types types;
  for (size_t i = 0; i < words.size();) {
    const int64_t dtype = words[i], rank = i + 1 < words.size() ? words[i + 1] : -1;
    if (dtype < 0 || dtype > UINT32_MAX || !IsKnown(static_cast<uint32_t>(dtype)) || rank < 0 ||
        rank > static_cast<int64_t>(words.size() - i - 2)) {
      return UserError("result_types ", DimsToString(words), " are no types, from entry ", i, " on");
    }
    const auto dims = words.begin() + static_cast<ptrdiff_t>(i) + 2;
    types.push_back(Type::Tensor(static_cast<DType>(dtype), Dims(dims, dims + rank)));
    i += 2 + static_cast<size_t>(rank);
  }
  return types;
}

absl::StatusOr<CustomSignature> SignatureOf(const Attrs& attrs) {
  return CustomSignature::Parse(static_cast<CustomKind>(attrs.Int(kKind)), attrs.String(kSignature));
}

absl::Status Infer(const InferCall& call, Types* results) {
  if (call.regions.size() > 1) return UserError("there are ", call.regions.size(), " gradients; there is one at most");
  WEFT_ASSIGN_OR_RETURN(const CustomSignature signature, SignatureOf(call.attrs));
  WEFT_ASSIGN_OR_RETURN(const Types said, Decode(call.attrs.IntList(kResultTypes)));
  size_t given = call.operands.size();
  while (given > 0 && call.operands[given - 1] == nullptr) --given;
  const std::span<const Type* const> operands = call.operands.first(given);
  if (said.size() != signature.results()) {
    return UserError("result_types are ", said.size(), " types; the signature '", signature.text, "' has ",
                     signature.results(), " results");
  }
  WEFT_ASSIGN_OR_RETURN(*results, signature.Results(operands, said));
  if (call.regions.empty()) return absl::OkStatus();
  return CheckCustomGradient(*call.regions[0], call.attrs.String(kTarget), operands, said);
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  if (call.node.regions().empty()) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the custom operation '", CustomTarget(call.node),
                       "' has no gradient; weft_custom_options.gradient or gradient_trace gives it one, "
                       "weft_stop_gradient goes without");
  }
  Values operands(call.operands.begin(), call.operands.end());
  operands.insert(operands.end(), call.results.begin(), call.results.end());
  for (size_t r = 0; r < call.results.size(); ++r) {
    if (!IsFloat(call.results[r].dtype())) continue;
    operands.push_back(call.cotangents[r] ? call.cotangents[r] : FullLike(call.b, call.results[r], 0));
  }
  const Values found = CallAll(call.b, kOp_call, std::move(operands), {}, call.node.regions());
  WEFT_RETURN_IF_ERROR(call.b.status());
  for (size_t i = 0, next = 0; i < grads.size(); ++i) {
    if (!IsFloat(call.operands[i].dtype())) continue;
    if (call.wanted[i]) grads[i] = found[next];
    ++next;
  }
  return absl::OkStatus();
}

// All examples in one call where the function takes them so; else left empty: one after the other.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  if (!call.node.attrs().Bool(kBatches)) return absl::OkStatus();
  Attrs attrs = call.node.attrs();
  Types types(call.node.results().begin(), call.node.results().end());
  for (Type& type : types) type.dims.insert(type.dims.begin(), call.size);
  attrs.set(kResultTypes, Encode(types));
  std::vector<Ref<const Function>> gradient;
  if (!call.node.regions().empty()) {
    const Function& one = *call.node.regions()[0];
    // A bit a value, all of them set; a vector<bool> has no span.
    const auto all = std::make_unique<bool[]>(one.parameters().size() + one.results().size());
    std::fill_n(all.get(), one.parameters().size() + one.results().size(), true);
    WEFT_ASSIGN_OR_RETURN(gradient.emplace_back(), call.region_batch(one, {all.get(), one.parameters().size()},
                                                                     {all.get(), one.results().size()}));
  }
  std::ranges::move(CallAll(call.b, kOp_custom_call, AllBatched(call), std::move(attrs), gradient), results.begin());
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "the custom operation '", call.attrs.String(kTarget),
                     "' is a function of this process, which no context is there to call");
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  writer.Emit("custom_call", {{"call_target_name", absl::StrCat("\"", CustomTarget(node), "\"")}});
}

Values Read(StableHloOp& op) {
  const ShloAttr *signature = op.Find(kShloSignature), *target = op.Find("call_target_name");
  if (signature == nullptr || target == nullptr) return op.Refuse("this target is not registered");
  if (op.Int("has_side_effect", 0) != 0) {
    return op.Refuse("the custom operation '", target->string,
                     "' is a function of its operands; has_side_effect = true wants more");
  }
  op.Understand({"api_version", "operand_layouts", "result_layouts", "output_operand_aliases", "called_computations"});
  Attrs attrs;
  attrs.set(kTarget, target->string);
  attrs.set(kKind, op.Int(kShloKind, 0));
  attrs.set(kSignature, signature->string);
  attrs.set(kResultTypes, Encode(op.results));
  attrs.set(kBatches, op.Int(kShloBatches, 0));
  return CallAll(op.b, kOp_custom_call, op.operands, std::move(attrs), op.Functions());
}

}  // namespace

Attrs CustomAttrs(const CustomFunction& function, std::span<const Type> results) {
  return {function.name, static_cast<int64_t>(function.signature.kind), function.signature.text, Encode(results),
          int64_t{function.batches}};
}

const std::string& CustomTarget(const Attrs& attrs) { return attrs.String(kTarget); }
absl::StatusOr<CustomSignature> CustomSignatureOf(const Attrs& attrs) { return SignatureOf(attrs); }

bool NeedsHost(const Node& node) { return &node.op() == &kOp_custom_call || BecomesFactors(node); }

namespace {

template <typename Is>
bool HasNode(const Function& function, Is is) {
  return std::ranges::any_of(CalleesFirst(function), [&](const Function* one) {
    return std::ranges::any_of(one->nodes(), [&](const Node* node) { return is(*node); });
  });
}

}  // namespace

bool NeedsHost(const Function& function) {
  return HasNode(function, [](const Node& node) { return NeedsHost(node); });
}
bool CallsCustom(const Function& function) {
  return HasNode(function, [](const Node& node) { return &node.op() == &kOp_custom_call; });
}

std::vector<Type> CustomGradientInputs(std::span<const Type* const> operands, std::span<const Type> results) {
  std::vector<Type> types;
  for (const Type* operand : operands) types.push_back(*operand);
  types.insert(types.end(), results.begin(), results.end());
  std::ranges::copy_if(results, std::back_inserter(types), [](const Type& type) { return IsFloat(type.dtype); });
  return types;
}

absl::Status CheckCustomGradient(const Function& gradient, std::string_view name, std::span<const Type* const> operands,
                                 std::span<const Type> results) {
  const std::vector<Type> wanted = CustomGradientInputs(operands, results);
  const auto wrong = [&](const auto&... what) {
    return UserError("the gradient of the custom operation '", name, "', @", gradient.name(), ", ", what...,
                     "; it is a function of the operands, the results and the cotangents of float results, which gives "
                     "the cotangents of float operands");
  };
  if (gradient.parameters().size() != wanted.size()) {
    return wrong("has ", gradient.parameters().size(), " parameters and not ", wanted.size());
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Type& type = gradient.parameters()[i].type();
    if (!(type == wanted[i]))
      return wrong("takes ", ShortType(type), " as parameter ", i, " and not ", ShortType(wanted[i]));
  }
  std::vector<Type> gives;
  for (const Type* operand : operands) {
    if (IsFloat(operand->dtype)) gives.push_back(*operand);
  }
  if (gradient.results().size() != gives.size()) {
    return wrong("has ", gradient.results().size(), " results and not ", gives.size());
  }
  for (size_t i = 0; i < gives.size(); ++i) {
    const Type& type = gradient.results()[i].type();
    if (!(type == gives[i]))
      return wrong("gives ", ShortType(type), " as result ", i, " and not ", ShortType(gives[i]));
  }
  return absl::OkStatus();
}

absl::Status RefuseCustomCalls(const Module& module, std::string_view platform) {
  for (const Ref<const Function>& function : module.functions) {
    for (const Function* one : CalleesFirst(*function)) {
      for (const Node* node : one->nodes()) {
        if (&node->op() == &kOp_matrix_factors) {
          return UserErrorOf(
              absl::StatusCode::kUnimplemented,
              "matrix decompositions are no part of StableHLO, and a program of the platform '", platform,
              "' cannot call the host for them: one stands in a loop, in a branch or in a function for each "
              "example, or the program is compiled before it runs. Elsewhere the host computes them between two "
              "programs; the platforms 'cpu' and 'reference' compute them anywhere");
        }
        if (&node->op() != &kOp_custom_call) continue;
        return UserErrorOf(
            absl::StatusCode::kUnimplemented, "the custom operation '", CustomTarget(*node),
            "' is a function of this process, which a program of the platform '", platform,
            "' cannot call: it is called in a loop, in a branch or for each example, or the program is compiled before "
            "it runs. Elsewhere the host calls it between two programs; the platforms 'cpu' and 'reference' call it "
            "anywhere");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCustomCalls(const Function& function, const CustomFunctions& registered) {
  for (const Function* one : CalleesFirst(function)) {
    for (const Node* node : one->nodes()) {
      if (&node->op() != &kOp_custom_call) continue;
      WEFT_ASSIGN_OR_RETURN(const Ref<const CustomFunction> found, registered.Get(CustomTarget(*node)));
      const std::string& wanted = node->attrs().String(kSignature);
      if (found->signature.text == wanted && static_cast<int64_t>(found->signature.kind) == node->attrs().Int(kKind)) {
        continue;
      }
      return UserError("the custom operation '", found->name, "' is registered with the signature '",
                       found->signature.text, "'; here it is called with '", wanted, "'");
    }
  }
  return absl::OkStatus();
}

constinit const OpDef kOp_custom_call = {
    .name = "custom_call",
    .c_name = "custom_call",
    .since = 1,
    .doc =
        "What a function of the caller's gives, which weft_custom_register has under this name. The C function is "
        "weft_custom_apply.",
    .operands = kOperands,
    .attrs = kAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
    .opaque = true,
    .as_seen = true,
};

}  // namespace weft::ops
