// See custom.h.
#include "src/stablehlo/custom.h"

#include <utility>
#include <vector>

#include "src/ops/custom/custom_call.h"

namespace weft::stablehlo {

Ref<const ops::CustomFunction> CustomOf(const Operation& op, const ReadOptions& options) {
  const ir::ShloAttr* target = op.name == "stablehlo.custom_call" ? op.Find("call_target_name") : nullptr;
  return target == nullptr || options.custom == nullptr ? nullptr : options.custom->Find(target->string);
}

ir::ShloAttr::Fields AttributesOf(const Operation& op, const ReadOptions& options) {
  const Ref<const ops::CustomFunction> custom = CustomOf(op, options);
  if (custom == nullptr) return op.attributes;
  ir::ShloAttr signature;
  signature.kind = ir::ShloAttr::Kind::kString;
  signature.string = custom->signature.text;
  ir::ShloAttr::Fields fields;
  fields.emplace_back(ops::kShloSignature, std::move(signature));
  fields.emplace_back(ops::kShloKind, ir::ShloAttr::Int(static_cast<int64_t>(custom->signature.kind)));
  fields.emplace_back(ops::kShloBatches, ir::ShloAttr::Int(custom->batches));
  fields.insert(fields.end(), op.attributes.begin(), op.attributes.end());
  return fields;
}

absl::Status AddCustom(const ops::CustomFunction& custom, ir::StableHloOp& call) {
  if (!call.regions.empty()) return UserError("a custom call has no regions");
  std::vector<const ir::Type*> operands;
  for (const ir::Value& operand : call.operands) operands.push_back(&operand.type());
  WEFT_RETURN_IF_ERROR(custom.signature.Results(operands, call.results).status());
  WEFT_ASSIGN_OR_RETURN(Ref<const ir::Function> gradient, custom.Gradient(operands, call.results));
  if (gradient != nullptr) call.regions.push_back({std::move(gradient), {}, false});
  return absl::OkStatus();
}

}  // namespace weft::stablehlo
