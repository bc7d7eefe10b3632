// See hosts.h.
#include "src/cli/hosts.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "src/cli/json.h"

namespace weft::cli {
namespace {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// No word of ssh's own, nor of a shell.
bool IsHost(std::string_view name) {
  return !name.empty() && name.front() != '-' &&
         name.find_first_of(" \t'\"`$\\;&|<>()*?!#\n") == std::string_view::npos && name.back() != '@';
}

LaunchHost HostNamed(std::string_view name) {
  const size_t at = name.rfind('@');
  // A password cannot be asked for among the lines of others, and a host that is gone is to be told.
  return {.name = std::string(name),
          .address = std::string(at == std::string_view::npos ? name : name.substr(at + 1)),
          .reach = {"ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", std::string(name)}};
}

bool IsFile(const std::string& path) {
  struct stat found = {};
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

bool ReadHostsFile(const std::string& path, std::vector<std::string>* names, std::string* why) {
  std::ifstream file(path);
  if (!file) {
    *why = path + ": " + std::strerror(errno);
    return false;
  }
  for (std::string line; std::getline(file, line);) {
    const std::string_view name = Trimmed(std::string_view(line).substr(0, line.find('#')));
    if (!name.empty()) names->emplace_back(name);
  }
  if (names->empty()) *why = path + " names no host; it has one in each line";
  return !names->empty();
}

std::string TextOf(const Value& value) {
  const auto* const text = std::get_if<std::string>(&value.data);
  return text == nullptr ? "" : *text;
}

// The output of a program, and its exit status; -1 where it cannot be run.
int OutputOf(const std::vector<std::string>& words, std::string* out) {
  std::string command;
  for (const std::string& word : words) command += (command.empty() ? "" : " ") + Quoted(word);
  std::FILE* const pipe = popen((command + " </dev/null").c_str(), "re");
  if (pipe == nullptr) return -1;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out->append(buffer, got);
  const int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

bool HostsOf(std::string_view text, std::vector<LaunchHost>* out, std::string* why) {
  std::vector<std::string> names;
  const bool marked = text.starts_with("@");
  const std::string path(marked ? text.substr(1) : text);
  if (marked || text.find('/') != std::string_view::npos ||
      (text.find(',') == std::string_view::npos && IsFile(path))) {
    if (!ReadHostsFile(path, &names, why)) return false;
  } else {
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      names.emplace_back(Trimmed(text.substr(at, comma - at)));
      at = comma + 1;
    }
  }
  for (const std::string& name : names) {
    if (!IsHost(name)) {
      *why = "'" + name + "' is no host; --hosts takes h1,user@h2, or a file with one in each line";
      return false;
    }
    if (std::ranges::count(names, name) > 1) {
      *why = "the host '" + name + "' is named twice; -n says how many processes each host gets";
      return false;
    }
    out->push_back(HostNamed(name));
  }
  return true;
}

bool HostsOfTpu(const std::string& name, const std::vector<std::string>& where, std::vector<LaunchHost>* out,
                std::string* why) {
  if (!IsHost(name)) {
    *why = "'" + name + "' is no name of a TPU";
    return false;
  }
  std::vector<std::string> gcloud = {"gcloud", "compute", "tpus", "tpu-vm"}, words = gcloud;
  words.insert(words.end(), {"describe", name, "--format=json"});
  words.insert(words.end(), where.begin(), where.end());
  std::string text;
  const int status = OutputOf(words, &text);
  if (status != 0) {
    *why = "gcloud, which says which machines the TPU '" + name + "' has, ended with status " + std::to_string(status) +
           (status == 127 ? ": it is not on PATH" : "");
    return false;
  }
  Value described = "";
  if (!FromJson(text, &described)) {
    *why = "what gcloud says of the TPU '" + name + "' is no JSON";
    return false;
  }
  const Value* const state = FieldOf(described, "state");
  if (state != nullptr && TextOf(*state) != "READY") {
    *why = "the TPU '" + name + "' is " + TextOf(*state) + ", not READY";
    return false;
  }
  const Value* const ends = FieldOf(described, "networkEndpoints");
  const auto* const list = ends == nullptr ? nullptr : std::get_if<List>(&ends->data);
  for (const Value& end : list == nullptr ? List() : *list) {
    const Value* const address = FieldOf(end, "ipAddress");
    const std::string worker = std::to_string(out->size());
    LaunchHost host = {
        .name = name + "-" + worker, .address = address == nullptr ? "" : TextOf(*address), .reach = gcloud};
    host.reach.insert(host.reach.end(), {"ssh", name, "--worker=" + worker});
    host.reach.insert(host.reach.end(), where.begin(), where.end());
    host.reach.emplace_back("--command");  // the shell's command is its value
    out->push_back(std::move(host));
  }
  if (out->empty() || out->front().address.empty()) {
    *why = "gcloud names no machines of the TPU '" + name + "' (networkEndpoints with an ipAddress)";
    return false;
  }
  return true;
}

std::string Quoted(std::string_view word) {
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  return text + "'";
}

bool IsVariableName(std::string_view name) {
  const auto letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && letter(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// The script comes by the standard input and not as an argument, where everybody on the host could read the job's token. `read` takes
// no byte behind a line's end, so the signals that follow are left for the script.
std::vector<std::string> ShellOn(const LaunchHost& host, std::string_view end) {
  const std::string body = "n=$(printf \"\\n_\"); n=${n%_}; s=; while IFS= read -r l; do if [ \"$l\" = \"" +
                           std::string(end) + "\" ]; then eval \"$s\"; exit; fi; s=$s$l$n; done; exit 1";
  if (host.reach.empty()) return {"sh", "-c", body};
  std::vector<std::string> words = host.reach;
  const std::string command = "exec sh -c '" + body + "'";  // it has no apostrophe, for shells of any kind
  if (words.back() == "--command") {
    words.back() += "=" + command;
  } else {
    words.push_back(command);
  }
  return words;
}

namespace {

std::string RoomOf(const HostRun& run) {
  if (!run.room.conda.empty()) return "conda run --no-capture-output --name " + Quoted(run.room.conda) + " ";
  if (run.room.docker.empty()) return "";
  // Processes of a job see whether the others live, and share memory and addresses.
  std::string text = "docker run --rm --init --network=host --ipc=host --pid=host --name " + Quoted(run.name);
  for (const std::string& flag : run.room.docker_flags) text += " " + Quoted(flag);
  // Names alone: the container gets the values from the client's variables, and arguments do not show them.
  for (const std::string& variable : run.variables) text += " -e " + variable.substr(0, variable.find('='));
  return text + " -e WEFT_THREADS -e OMP_NUM_THREADS " + Quoted(run.room.docker) + " ";
}

}  // namespace

std::string ScriptOf(const HostRun& run, std::string_view end) {
  std::string text;
  const auto line = [&](std::string_view words) { text.append(words) += '\n'; };
  for (const std::string& variable : run.variables) {
    const size_t equals = variable.find('=');
    line("export " + variable.substr(0, equals) + "=" + Quoted(std::string_view(variable).substr(equals + 1)));
  }
  if (!run.folder.empty()) {
    line("cd " + Quoted(run.folder) + " 2>/dev/null || { echo " +
         Quoted("weft launch: this host has no folder " + run.folder) + " >&2; exit 1; }");
  }
  line("t=$(( $(nproc 2>/dev/null || echo 1) / " + std::to_string(run.count) + " )); [ $t -gt 0 ] || t=1");
  line("export WEFT_THREADS=\"${WEFT_THREADS:-$t}\" OMP_NUM_THREADS=\"${OMP_NUM_THREADS:-$t}\"");
  line("exec 3<&0 </dev/null");
  // A session of its own, whose group is the child's number.
  std::string words = "setsid " + RoomOf(run);
  for (size_t i = 0; i < run.words.size(); ++i) words += (i == 0 ? "" : " ") + Quoted(run.words[i]);
  line(words + " 3<&- &");
  line("c=$!");
  line("exec >/dev/null 2>&1");  // whoever reads the output waits for the child alone
  const bool docker = !run.room.docker.empty();
  // The client of a container that is killed leaves it behind.
  line("k() { kill -s \"$1\" -- \"-$c\" || kill -s \"$1\" \"$c\"; " +
       (docker ? "if [ \"$1\" = KILL ]; then docker kill " + Quoted(run.name) + "; fi; " : std::string()) + "}");
  line("{ while IFS= read -r w; do k \"$w\"; done; k TERM; k CONT; i=0; while [ $i -lt " +
       std::to_string((run.grace_ms + 999) / 1000) +
       " ] && kill -0 -- \"-$c\"; do sleep 1; i=$((i+1)); done; k KILL; } <&3 &");
  line("w=$!");
  line("exec 3<&-");
  line("trap 'k TERM' HUP INT TERM");
  line("while :; do wait $c; r=$?; kill -0 $c || break; done");
  // Processes that the child started end with it.
  line("kill -s KILL -- \"-$c\"");
  if (docker) line("[ $r -lt 128 ] || docker kill " + Quoted(run.name));
  line("kill $w");
  line("exit $r");
  line(end);
  return text;
}

}  // namespace weft::cli
