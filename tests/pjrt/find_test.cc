// Where plugins are looked for, and what is made of options' texts.
#include "src/backends/pjrt/find.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/backends/pjrt/create_options.h"
#include "src/backends/pjrt/libtpu.h"
#include "src/backends/pjrt/topology.h"

namespace weft::pjrt {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Find : public ::testing::Test {
 protected:
  Find() {
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "PATH", "HOME", "LD_LIBRARY_PATH", "TPU_LIBRARY_PATH"}) {
      const char* const value = getenv(name);
      before_.emplace_back(name, value != nullptr ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
    char folder[] = "/tmp/weft_find_XXXXXX";
    root_ = mkdtemp(folder);
  }
  ~Find() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        setenv(name, value->c_str(), 1);
      } else {
        unsetenv(name);
      }
    }
    fs::remove_all(root_);
  }
  std::string File(const std::string& path) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "x";
    return (root_ / path).string();
  }
  void Set(const char* name, const std::string& path) { setenv(name, (root_ / path).c_str(), 1); }

  fs::path root_;
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST_F(Find, FromTheFirstThatHasIt) {
  const std::string loader = File("lib/libtpu.so");
  Set("LD_LIBRARY_PATH", "lib");
  EXPECT_EQ(loader, *FindPlugin("tpu"));
  const std::string on_path = File("py/lib/python3.12/site-packages/libtpu/libtpu.so");
  File("py/bin/python3");
  Set("PATH", "py/bin");
  EXPECT_EQ(on_path, *FindPlugin("tpu"));
  const std::string of_venv = File("venv/lib/python3.11/site-packages/libtpu/libtpu.so");
  Set("VIRTUAL_ENV", "venv");
  EXPECT_EQ(of_venv, *FindPlugin("tpu"));
  const std::string named = File("mine.so");
  Set("TPU_LIBRARY_PATH", "mine.so");
  EXPECT_EQ(named, *FindPlugin("tpu"));
}

TEST_F(Find, OfAGpuTheNewestOfCudaThenRocm) {
  Set("VIRTUAL_ENV", "venv");
  const std::string rocm = File("venv/lib/python3.11/site-packages/jax_plugins/xla_rocm7/xla_rocm_plugin.so");
  EXPECT_EQ(rocm, *FindPlugin("gpu"));
  File("venv/lib/python3.11/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so");
  const std::string cuda = File("venv/lib/python3.11/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
  EXPECT_EQ(cuda, *FindPlugin("gpu"));
  EXPECT_EQ(cuda, *FindPlugin("cuda"));
  EXPECT_EQ(rocm, *FindPlugin("rocm"));
}

TEST_F(Find, SaysWhereItLookedAndHowToGetOne) {
  Set("VIRTUAL_ENV", "venv");
  fs::create_directories(root_ / "venv/lib/python3.11");
  const std::string text(FindPlugin("rocm").status().message());
  EXPECT_THAT(text, HasSubstr((root_ / "venv/lib/python3.11/site-packages").string()));
  EXPECT_THAT(text, HasSubstr("How to get one: "));
}

TEST(PluginOptions, HaveTheirTypes) {
  using Kind = api::NamedValue::Kind;
  const auto options = CreateOptions::Parse("a=true,b=-4,c=0.5,d=x=y,e='4',f=");
  ASSERT_TRUE(options.ok()) << options.status();
  const auto values = options->NamedValues();
  ASSERT_EQ(6u, values.size());
  EXPECT_EQ(Kind::kBool, values[0].kind);
  EXPECT_TRUE(values[0].flag);
  EXPECT_EQ(Kind::kInt64, values[1].kind);
  EXPECT_EQ(-4, values[1].integer);
  EXPECT_EQ(Kind::kFloat, values[2].kind);
  EXPECT_EQ(0.5f, values[2].number);
  const auto text = [&](size_t i) { return std::string(values[i].string, values[i].value_size); };
  for (const size_t i : {3, 4, 5}) EXPECT_EQ(Kind::kString, values[i].kind);
  EXPECT_EQ("x=y", text(3));
  EXPECT_EQ("4", text(4));
  EXPECT_EQ("", text(5));
  EXPECT_EQ(56u, values[0].head.struct_size);
  EXPECT_FALSE(CreateOptions::Parse("=1").ok());
}

TEST(PluginOptions, WhatIsSaidGoesBeforeTheDefault) {
  for (const auto& [text, expected] : {std::pair{"", "a=false"}, {"b=1", "b=1,a=false"}, {"a=true,b=1", "a=true,b=1"}}) {
    auto options = CreateOptions::Parse(text);
    ASSERT_TRUE(options.ok()) << options.status();
    options->Default("a", "false");
    EXPECT_THAT(options->Explain(absl::InternalError("no")).message(), HasSubstr(absl::StrCat("(plugin_options: ", expected, ")")));
    EXPECT_EQ(absl::StartsWith(text, "a"), options->NamedValues()[text[0] == 'b' ? 1 : 0].flag);
  }
}

TEST_F(Find, WhoHoldsATpuIsNamed) {
  const fs::path accel = root_ / "accel0", group = root_ / "vfio/7";
  EXPECT_FALSE(HasTpu(root_));
  EXPECT_THAT(WhatToCheckOfTpu(root_), HasSubstr("There is neither /dev/accel0 nor a device in /dev/vfio"));
  fs::create_directories(root_ / "vfio");
  std::ofstream(root_ / "vfio/vfio").close();
  EXPECT_FALSE(HasTpu(root_));
  for (const fs::path& device : {accel, group}) {
    std::ofstream(device).close();
    EXPECT_TRUE(HasTpu(root_));
    const int held = open(device.c_str(), O_RDONLY);
    EXPECT_THAT(WhatToCheckOfTpu(root_), HasSubstr("check that this user may open it, that no other process holds it")) << "this one does not count";
    const pid_t other = fork();
    if (other == 0) {
      pause();
      _exit(0);
    }
    close(held);
    EXPECT_THAT(WhatToCheckOfTpu(root_), HasSubstr(absl::StrCat(". process ", other, " (weft_test_pjrt) holds the TPU: end it, or ")));
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
    fs::remove(device);
  }
}

TEST(TpuTopology, IsAFamilyAndAGrid) {
  for (const char* name : {"v2:2x2", "v3:4x4", "v4:2x2x1", "v5e:1x1", "v5p:2x2x1", "v6e:16x16", "tpu7x:2x2x1"}) {
    EXPECT_TRUE(CheckTpuTopology(name).ok()) << name;
  }
  for (const char* name : {"", ":", "v5e", "v5e:", "v5e:2", "v5e:2x2x1", "v4:2x2", "v7:1x1", "v5e:0x1", "v5e:65x1", "v5e:axb", "v5e:2x2 ", "v5e:+2x2"}) {
    EXPECT_FALSE(CheckTpuTopology(name).ok()) << name;
  }
}

}  // namespace
}  // namespace weft::pjrt
