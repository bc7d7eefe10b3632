// See picture.h.
#include "src/cli/picture.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern char** environ;

namespace weft::cli {
namespace {

// Returns a file in memory that holds the text, at its beginning; -1 with errno where there is none.
int Unnamed(const std::string& text) {
  const int file = memfd_create("weft-graph", MFD_CLOEXEC);
  if (file < 0) return -1;
  for (size_t at = 0; at < text.size();) {
    const ssize_t wrote = write(file, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return close(file), -1;
    at += static_cast<size_t>(wrote);
  }
  lseek(file, 0, SEEK_SET);
  return file;
}

}  // namespace

bool DrawSvg(const std::string& dot, const std::string& path, std::string* problem) {
  const int input = Unnamed(dot);
  if (input < 0)
    return *problem = "there is no memory to hand the graph to Graphviz: " + std::string(strerror(errno)), false;
  std::string program = "dot", format = "-Tsvg", out = "-o" + path;
  char* const argv[] = {program.data(), format.data(), out.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(input);
  if (error == ENOENT) {
    *problem = "Graphviz's program 'dot' is not installed; without --svg the graph is written as DOT text";
    return false;
  }
  if (error != 0) return *problem = "'dot' cannot be run: " + std::string(strerror(error)), false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  return *problem = "Graphviz's program 'dot' could not write " + path, false;
}

}  // namespace weft::cli
