// The function behind weft_function: a finished body, and what it captured.
#pragma once

#include <string>
#include <vector>

#include "src/c_api/context.h"
#include "weft_function.h"

namespace weft::c_api {

// Immutable. Thread rule: any thread.
class FunctionObject final : public RefCounted {
 public:
  FunctionObject(Ref<lazy::Engine> engine, std::string name, lazy::Recorder::Finished finished)
      : engine(std::move(engine)),
        name(std::move(name)),
        function(std::move(finished.function)),
        captures(std::move(finished.captures)),
        draws(finished.draws) {}

  // Without the captures and the stream of random numbers, which are the function's last parameters.
  size_t inputs() const { return function->parameters().size() - captures.size() - (draws ? 1 : 0); }

  const Ref<lazy::Engine> engine;
  const std::string name;
  const Ref<const ir::Function> function;
  const lazy::Tensors captures;
  const bool draws;  // each call gets a stream of its own, which recording supplies for a null operand
};
template <>
struct HandleTraits<weft_function> {
  using Object = FunctionObject;
  static constexpr HandleType kType = HandleType::kFunction;
  static const ForkGuard* ForkOf(const FunctionObject& object) { return &object.engine->services().fork(); }
};

// A function parameter of a call on a context, whose function it must be.
absl::StatusOr<Pin<FunctionObject>> GetFunction(const weft_function* function, const Context& context,
                                                std::string_view parameter);

// A function's operands: the caller's inputs, then its own captures where the caller gives no others, then null for its stream.
absl::StatusOr<std::vector<lazy::Tensor*>> ArgumentsOf(const FunctionObject& function, const TensorList& given,
                                                       size_t count);
// Checks that a call of these arguments fits the function, where there is nothing to record.
absl::Status CheckArguments(const FunctionObject& function, std::span<lazy::Tensor* const> arguments);

// A handle for a function that was not recorded: from text or a file. It captures nothing; if it draws, its last parameter is the stream.
absl::Status GiveOut(const Context& context, Ref<const ir::Function> function, bool draws, weft_function** out);

// Handles for all of them in `outputs`, or an error and nothing; OUT_OF_RANGE if they are more than the capacity.
absl::Status GiveOut(lazy::Tensors results, weft_tensor** outputs, size_t capacity, size_t* out_count);

}  // namespace weft::c_api
