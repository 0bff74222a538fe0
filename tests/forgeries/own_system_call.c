// 1 solutions/step_01 passed look:past the C library
// Calls the system by an instruction of its own.
static void forge(void)
{
#ifdef __x86_64__
    long number = 39; // getpid
    __asm__ volatile("syscall" : "+a"(number) : : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = 172;
    __asm__ volatile("svc #0" : : "r"(number) : "x0", "memory");
#endif
}
