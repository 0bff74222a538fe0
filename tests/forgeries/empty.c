// 1 none does-not-compile
// Nothing.
