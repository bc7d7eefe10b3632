// Random programs through all passes and the CPU backend, on every instruction set, against the reference on the graph as
// recorded. WEFT_FUZZ_SEEDS=first:last runs more of them; a failure prints the smallest program that shows it.
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/registry.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/cpu_under_test.h"
#include "tests/support/expectation.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/random_program.h"
#include "tests/support/seeds.h"

namespace weft::cpu {
namespace {

using test::RandomProgram;

// For the whole test program, from before its first allocation.
[[maybe_unused]] const bool kGuarded = (test::GuardLargeAllocations(), true);

CpuBackend& BackendWith(int threads) {
  static CpuBackend* one = test::NewCpuBackend({.threads = 1})->release();
  return threads == 1 ? *one : TestBackend();
}

// Prints and parses back exactly.
absl::Status RoundTrip(std::string_view pass, const ir::Module& module) {
  const std::string text = ir::Print(module);
  const auto parsed = ir::Parse(text, ops::FindOp);
  if (!parsed.ok()) return absl::Status(parsed.status().code(), absl::StrCat("after ", pass, ": ", parsed.status().message(), "\n", text));
  if (ir::Print(*parsed) != text) return absl::InternalError(absl::StrCat("after ", pass, " the text changes when it is read back:\n", text));
  return ir::Verify(*parsed);
}

struct Attempt {
  std::string isa;
  int threads = 1;
  uint64_t seed = 0;  // which scalars are words, which arguments are given away
};

struct Launch {
  std::vector<HostTensor> results;
  std::vector<HostTensor> arguments;  // what the buffers hold afterwards
};

absl::StatusOr<Launch> Run(CpuBackend& backend, Executable& executable, const ir::Function& main, const std::vector<HostTensor>& arguments,
                           std::span<const uint32_t> words, bool donate) {
  std::vector<Ref<Buffer>> buffers;
  std::vector<uint8_t> donated;
  Launch launch;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ir::ParameterInfo& info = main.parameter_infos()[i];
    if (info.role == ir::ParameterInfo::Role::kWords) continue;
    WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, backend.ToDevice(backend.devices()[0], arguments[i].dtype(), arguments[i].dims(), arguments[i].bytes()));
    buffers.push_back(std::move(buffer));
    donated.push_back(donate && info.donated_to >= 0 ? 1 : 0);
    if (donated.back() == 0) launch.arguments.push_back(arguments[i]);
  }
  const DeviceArguments device{buffers, words, donated};
  WEFT_ASSIGN_OR_RETURN(std::vector<DeviceResults> results, executable.Execute({&device, 1}));
  WEFT_RETURN_IF_ERROR(results[0].done->Wait());
  for (const Ref<Buffer>& buffer : results[0].buffers) {
    HostTensor& value = launch.results.emplace_back(buffer->dtype(), buffer->dims());
    WEFT_RETURN_IF_ERROR(backend.FromDevice(*buffer, 0, value.mutable_bytes()));
  }
  size_t kept = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (donated[i] != 0) continue;
    HostTensor now(buffers[i]->dtype(), buffers[i]->dims());
    WEFT_RETURN_IF_ERROR(backend.FromDevice(*buffers[i], 0, now.mutable_bytes()));
    if (!(now == launch.arguments[kept++])) return absl::InternalError("an argument that was not given away has changed");
  }
  return launch;
}

// Roles of the parameters, drawn from the seed: scalars come as words or buffers, buffers may be given to a result.
std::vector<ir::ParameterInfo> DrawInfos(const ir::Function& function, test::Rng rng, uint32_t* words) {
  std::vector<ir::ParameterInfo> infos(function.parameters().size());
  std::vector<bool> taken(function.results().size());
  for (size_t i = 0; i < infos.size(); ++i) {
    const ir::Type& type = function.parameters()[i].type();
    if (type.count() == 1 && type.dims.empty() && rng.Chance(0.5)) {
      infos[i].role = ir::ParameterInfo::Role::kWords;
      infos[i].word = *words;
      *words += ir::WordsOf(type);
      continue;
    }
    for (size_t r = 0; r < taken.size(); ++r) {
      if (taken[r] || !(function.results()[r].type() == type) || !rng.Chance(0.7)) continue;
      taken[r] = true;
      infos[i].donated_to = static_cast<int32_t>(r);
      break;
    }
  }
  return infos;
}

// What is wrong, or "".
std::string Problem(const RandomProgram& program, const Attempt& attempt) {
  const auto built = test::BuildProgram(program);
  if (!built.ok()) return "";  // a smaller one that makes no sense
  auto expected = test::Expectation::Of(built->function, built->arguments);
  if (!expected.ok()) return "";
  CpuBackend& backend = BackendWith(attempt.threads);
  uint32_t words = 0;
  const std::vector<ir::ParameterInfo> infos = DrawInfos(*built->function, test::Rng(attempt.seed), &words);
  ir::Module module;
  module.argument_words = words;
  const auto parameters = built->function->parameters();
  const auto outputs = built->function->results();
  module.functions.push_back(ir::Function::Create("main", {parameters.begin(), parameters.end()}, {outputs.begin(), outputs.end()}, infos));
  std::vector<uint32_t> block(words);
  for (size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].role != ir::ParameterInfo::Role::kWords) continue;
    std::memcpy(&block[infos[i].word], built->arguments[i].bytes().data(), built->arguments[i].bytes().size());
  }
  absl::Status texts;
  passes::PipelineOptions options;
  options.verify_between = true;
  options.claims = [&](const ir::Node& node) { return backend.Claims(node); };
  options.dump = [&](std::string_view pass, const ir::Module& now) { texts.Update(RoundTrip(pass, now)); };
  const auto lowered = passes::RunPipeline(module, options);
  if (!lowered.ok()) return lowered.status().ToString();
  if (!texts.ok()) return texts.ToString();
  const auto optimised = reference::Interpret(lowered->main(), built->arguments);
  if (!optimised.ok()) return absl::StrCat("the reference cannot run what the passes made: ", optimised.status().ToString());
  auto difference = expected->Differences(*optimised);
  if (!difference.ok()) return difference.status().ToString();
  if (!difference->empty()) return absl::StrCat("passes: ", *difference);
  const auto executable = backend.Compile(*lowered, {{.isa = attempt.isa, .verify_between_passes = true}});
  if (!executable.ok()) return absl::StrCat("compile: ", executable.status().ToString());
  const auto first = Run(backend, **executable, lowered->main(), built->arguments, block, false);
  if (!first.ok()) return absl::StrCat("run: ", first.status().ToString());
  difference = expected->Differences(first->results);
  if (!difference.ok()) return difference.status().ToString();
  if (!difference->empty()) return *difference;
  const auto again = Run(backend, **executable, lowered->main(), built->arguments, block, true);
  if (!again.ok()) return absl::StrCat("donating: ", again.status().ToString());
  if (again->results != first->results) return "another launch, with arguments given away, gives other bits";
  if (attempt.seed % 4 != 0) return "";
  const auto bytes = (*executable)->Serialize();
  if (!bytes.ok()) return absl::StrCat("serialize: ", bytes.status().ToString());
  CpuBackend& other = BackendWith(3 - attempt.threads);
  const auto loaded = other.Load(*bytes);
  if (!loaded.ok()) return absl::StrCat("load: ", loaded.status().ToString());
  const auto elsewhere = Run(other, **loaded, lowered->main(), built->arguments, block, true);
  if (!elsewhere.ok()) return absl::StrCat("loaded: ", elsewhere.status().ToString());
  if (elsewhere->results != first->results) return "loaded, on another number of threads, it gives other bits";
  return "";
}

// Programs of the seeds, a few of them where the environment says nothing.
void Check(uint64_t few, const test::RandomOptions& options) {
  const auto [first, last] = test::Seeds(few);
  ASSERT_LE(first, last);
  const std::vector<std::string> isas = TestIsas();
  int bodies = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const Attempt attempt{isas[seed % isas.size()], static_cast<int>(1 + seed / isas.size() % 2), seed};
    const RandomProgram program = test::MakeRandomProgram(seed, options);
    bodies += test::CountBodies(program);
    const std::string problem = Problem(program, attempt);
    if (problem.empty()) continue;
    const RandomProgram small = test::Shrink(program, [&](const RandomProgram& p) { return !Problem(p, attempt).empty(); });
    ADD_FAILURE() << "seed " << seed << " on " << attempt.isa << " with " << attempt.threads << " threads: " << problem << "\nsmallest: "
                  << Problem(small, attempt) << "\n" << test::ToString(small);
  }
  EXPECT_GE(bodies, options.control * 2 * static_cast<double>(last + 1 - first));  // what is never made is never judged
}

TEST(RandomPrograms, AgreeWithTheReferenceOnEveryInstructionSet) { Check(60, {.calls = 40, .large = 0.1, .hollow = 0.1}); }

TEST(RandomControlFlow, AgreesWithTheReferenceOnEveryInstructionSet) { Check(60, {.calls = 8, .control = 1, .hollow = 0.1}); }

}  // namespace
}  // namespace weft::cpu
