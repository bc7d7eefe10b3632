/* A project of somebody else: sees the installed headers and library, nothing of this tree. */
#include <stdio.h>
#include <weft.h>

int main(void) {
  unsigned version = (unsigned)weft_abi_version();
  printf("abi %u.%u\n", version >> 16, version & 0xFFFFu);
  return version >> 16 == 1 ? 0 : 1;
}
