// One engine on the fake backend, and short spellings for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "src/lazy/engine.h"
#include "src/ops/registry.h"
#include "tests/lazy/fake_backend.h"

namespace weft::lazy {

using T = Ref<Tensor>;

struct World {
  explicit World(Options options = {}, int devices = 1, bool asynchronous = false,
                 std::unique_ptr<compiler::ProgramStore> store = nullptr) {
    auto owned = std::make_unique<testing::FakeBackend>(devices, asynchronous);
    backend = owned.get();
    Start(options, std::move(owned), std::move(store));
  }
  // On a backend that ships.
  World(Options options, std::unique_ptr<Backend> real, std::unique_ptr<compiler::ProgramStore> store = nullptr) {
    Start(options, std::move(real), std::move(store));
  }
  void Start(Options options, std::unique_ptr<Backend> owned, std::unique_ptr<compiler::ProgramStore> store) {
    options.program.verify_between_passes = true;
    Engine::Config config;
    config.options = options;
    config.backends.push_back(std::move(owned));
    config.store = std::move(store);
    config.log = [this](LogLevel level, std::string_view text) {
      if (level >= LogLevel::kWarning) log.push_back(std::string(text));
    };
    auto created = Engine::Create(std::move(config));
    EXPECT_TRUE(created.ok()) << created.status();
    engine = *std::move(created);
  }

  T F32(Dims dims, std::vector<float> values, int device = 0) {
    auto tensor = engine->FromHost(engine->devices()[static_cast<size_t>(device)], DType::kF32, dims,
                                   std::as_bytes(std::span(values)));
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *std::move(tensor);
  }
  T Vector(std::vector<float> values) {
    const auto n = static_cast<int64_t>(values.size());
    return F32({n}, std::move(values));
  }
  T Number(double value) { return engine->Scalar(nullptr, DType::kF32, value).value(); }

  absl::StatusOr<Tensors> TryOp(std::string_view name, std::vector<T> operands, ir::Attrs attrs = {},
                                ir::Location location = {}) {
    const ir::OpDef* op = ops::FindOp(name);
    if (op == nullptr) return absl::NotFoundError(name);
    std::vector<Tensor*> raw;
    for (const T& operand : operands) raw.push_back(operand.get());
    Tensors results;
    WEFT_RETURN_IF_ERROR(engine->Record(*op, raw, std::move(attrs), location, &results));
    return results;
  }
  T Op(std::string_view name, std::vector<T> operands, ir::Attrs attrs = {}) {
    auto results = TryOp(name, std::move(operands), std::move(attrs));
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? (*results)[0] : nullptr;
  }
  // A scope's temporary.
  T Tmp(std::string_view name, std::vector<T> operands, ir::Attrs attrs = {}) {
    T tensor = Op(name, std::move(operands), std::move(attrs));
    if (tensor) engine->AdoptByScope(tensor.get());
    return tensor;
  }
  T Sum(const T& x) { return Op("sum", {x}); }
  std::vector<T> Grad(const T& loss, std::vector<T> wrt) {
    std::vector<Tensor*> raw;
    for (const T& x : wrt) raw.push_back(x.get());
    auto found = engine->Gradient(loss.get(), raw);
    EXPECT_TRUE(found.ok()) << found.status();
    if (!found.ok()) return std::vector<T>(wrt.size());
    return {found->begin(), found->end()};
  }
  void Sync() {
    auto event = engine->Sync();
    ASSERT_TRUE(event.ok()) << event.status();
    ASSERT_TRUE((*event)->Wait().ok()) << (*event)->status();
  }
  std::vector<float> Read(const T& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor->type().count()));
    absl::Status status = engine->ToHost(tensor.get(), std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }
  int64_t Count(Counter counter) { return engine->metrics().Get(counter); }

  testing::FakeBackend* backend = nullptr;  // before the engine dies; null on another backend
  std::vector<std::string> log;
  Ref<Engine> engine;
};

using ::testing::ElementsAre;
using ::testing::HasSubstr;

}  // namespace weft::lazy
