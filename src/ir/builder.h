// Makes checked nodes inside rules (gradients, expansions, passes). Errors stick: rules read like formulas and the
// caller asks once at the end.
#pragma once

#include "src/ir/function.h"
#include "src/ir/op_def.h"
#include "src/runtime/status.h"

namespace weft::ir {

// Sets each attribute that is absent and has a default.
absl::Status FillDefaults(const OpDef& op, Attrs& attrs);

// Fills defaults in, checks operand and region counts, dtypes, attribute types, then the operation's shape rule. On error the
// text reads "add(f32[2, 3], i32[3]): …".
absl::Status CheckCall(const OpDef& op, std::span<const Value> operands, Attrs& attrs, Types* results,
                       RegionSpan regions = {});
// Count and dtypes only, for calls whose operands are still to be broadcast.
absl::Status CheckOperands(const OpDef& op, std::span<const Value> operands);
// A failure with the call before its text, and operation and operands as payloads.
absl::Status NameCall(const OpDef& op, std::span<const Value> operands, const absl::Status& status);

// "f32[2, 3]", as error texts show operands.
std::string ShortType(const Type& type);

// Thread rule: one thread.
class Builder {
 public:
  explicit Builder(Location location = {}) : location_(location) {}

  // The single result, or an empty value once anything has failed. Empty operands where the operation does not allow
  // them are taken as the failure they come from.
  Value Emit(const OpDef& op, Values operands, Attrs attrs = {}, RegionSpan regions = {});
  // All results.
  Values EmitAll(const OpDef& op, Values operands, Attrs attrs = {}, RegionSpan regions = {});
  // The single result of a call that the caller has checked and whose type it knows. No default is filled in.
  Value EmitKnown(const OpDef& op, Values operands, Attrs attrs, Type type);

  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  // Nodes made so far.
  int64_t emitted() const { return emitted_; }
  Location location() const { return location_; }
  void set_location(Location location) { location_ = location; }

 private:
  absl::Status status_;
  int64_t emitted_ = 0;
  Location location_;
};

}  // namespace weft::ir
