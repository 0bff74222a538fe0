// 1 none does-not-compile
// Includes a file without an end.
#include "/dev/zero"
