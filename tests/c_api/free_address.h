/* An address for a job over several hosts, which here are processes of one. For files that ask for POSIX. */
#ifndef WEFT_TESTS_FREE_ADDRESS_H
#define WEFT_TESTS_FREE_ADDRESS_H

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

/* "localhost:" and a port that nobody had just now. */
static void find_address(char* out, size_t size) {
  struct sockaddr_in address;
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, sizeof address) != 0 || getsockname(fd, (struct sockaddr*)&address, &length) != 0) exit(1);
  close(fd);
  snprintf(out, size, "localhost:%d", ntohs(address.sin_port));
}

#endif
