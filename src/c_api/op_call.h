// One operation called from C: collects operands and attributes by position, then records. The generated bodies are made
// of these calls and nothing else.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "src/c_api/guard.h"
#include "src/ir/op_def.h"
#include "src/lazy/engine.h"
#include "weft_ops.h"

namespace weft::c_api {

class Context;

// Thread rule: one thread. The first thing that is wrong is what Record reports. The context is pinned for the call; operands
// are looked up when the engine is locked.
class OpCall {
 public:
  OpCall(const ir::OpDef& op, weft_context* ctx);
  // Serves code that records the operation otherwise: it may call TakeAttrs and FindOperands, but not Record.
  explicit OpCall(const ir::OpDef& op) : op_(op) {}

  void Operand(weft_tensor* tensor) { operands_.push_back(Unfound(tensor != nullptr ? tensor : Missing())); }
  void Optional(weft_tensor* tensor) { operands_.push_back(Unfound(tensor)); }
  void Variadic(weft_tensor* const* tensors, size_t count);

  void SetInt(size_t at, int64_t value) { attrs_.set(at, value); }
  void SetDouble(size_t at, double value) { attrs_.set(at, value); }
  void SetBool(size_t at, int32_t value) { attrs_.set(at, int64_t{value != 0}); }
  void SetEnum(size_t at, int32_t value);
  void SetEnumByName(size_t at, const char* data, size_t length);
  void SetDType(size_t at, uint32_t value);
  void SetInts(size_t at, const int64_t* data, size_t count);
  void SetDoubles(size_t at, const double* data, size_t count);
  void SetText(size_t at, const char* data, size_t length);
  // An attribute of weft_op_apply, in whatever type it comes.
  void SetAny(size_t at, int32_t type, int64_t i, double d, const void* data, size_t count);
  // A function that the operation carries, in the order of OpDef::regions.
  void Region(Ref<const ir::Function> function) { regions_.push_back(std::move(function)); }
  // Bits of an options struct that no attribute has.
  void CheckPresent(uint64_t present, uint64_t known);

  void Fail(absl::Status status) {
    if (!status_.ok()) return;
    status_ = std::move(status);
    before_failure_ = operands_.size();
  }
  absl::Status Record(std::initializer_list<weft_tensor**> outs);
  // Records an operation that has no operands to say where.
  absl::Status Record(std::initializer_list<weft_tensor**> outs, weft_device* device);
  // Results may be NULL, but not all of them.
  absl::Status RecordSome(std::initializer_list<weft_tensor**> outs);
  // Records for weft_op_apply: any number of results. `infos` and `device` may be NULL.
  absl::Status RecordInto(weft_tensor** outs, weft_tensor_info* infos, size_t capacity, size_t* out_count,
                          weft_device* device);

  const ir::OpDef& op() const { return op_; }
  absl::StatusOr<ir::Attrs> TakeAttrs() {
    if (!status_.ok()) return status_;
    return std::move(attrs_);
  }
  std::span<lazy::Tensor*> operands() { return {operands_.data(), operands_.size()}; }
  // Puts tensors in the place of the first `count` handles, under the engine's lock.
  absl::Status FindOperands(size_t count, const lazy::Engine& engine);

 private:
  // Stands for NULL where something is needed; no handle.
  static weft_tensor* Missing() { return reinterpret_cast<weft_tensor*>(uintptr_t{1}); }
  static lazy::Tensor* Unfound(weft_tensor* tensor) { return reinterpret_cast<lazy::Tensor*>(tensor); }
  weft_tensor* HandleAt(size_t i) const { return reinterpret_cast<weft_tensor*>(operands_[i]); }
  absl::Status Run(lazy::Tensors* results);
  absl::Status RunAt(Device* device, lazy::Tensors* results);
  absl::Status CheckOperand(size_t i) const;
  // `owner`: whose tensors were looked for; null where only the kind of handle was.
  absl::Status BadOperand(size_t i, const lazy::Engine* owner) const;
  absl::Status Bad(size_t at, std::string_view what);

  const ir::OpDef& op_;
  Pin<Context> context_;
  absl::Status status_;
  size_t before_failure_ = 0;                       // operands that were given before what status_ says
  absl::InlinedVector<lazy::Tensor*, 4> operands_;  // handles until they are found; null: an optional one is absent
  ir::Attrs attrs_;
  absl::InlinedVector<Ref<const ir::Function>, 1> regions_;
};

// Looks up what the caller of weft_op_apply and its like named.
absl::StatusOr<const ir::OpDef*> ExportedOp(const char* name, size_t length);
absl::Status SetAttrs(OpCall& call, const weft_attr* attrs, size_t count);
// One call of weft_op_apply and its kin.
struct Applied {
  weft_context* ctx;
  weft_device* device;  // NULL: nobody says
  const char* name;
  size_t name_length;
  std::span<weft_tensor* const> inputs;
  const weft_attr* attrs;
  size_t attr_count;
};
absl::Status Apply(const Applied& applied, weft_tensor** outputs, weft_tensor_info* infos, size_t capacity,
                   size_t* out_count);
void Describe(const lazy::Tensor& tensor, weft_tensor_info* info);
// A device that was asked for (or null) is where results are; operands that are elsewhere decide otherwise.
absl::Status CheckDevice(std::span<const Ref<lazy::Tensor>> results, const Device* asked, const ir::OpDef& op);
// Handles for all of them, or for none; NULL for an absent one. `made` has room for as many.
absl::Status MakeTensors(std::span<Ref<lazy::Tensor>> tensors, weft_tensor** made);
absl::Status MakeTensors(std::span<Ref<lazy::Tensor>> tensors, std::vector<weft_tensor*>* made);

// Operations with tensors in, one tensor out, and nothing else: most elementwise ones.
weft_error* RecordPlain(const ir::OpDef& op, weft_context* ctx, std::initializer_list<weft_tensor*> operands,
                        weft_tensor** out,
                        const CalledFrom& from = {__builtin_return_address(0), __builtin_frame_address(0)}) noexcept;

}  // namespace weft::c_api
