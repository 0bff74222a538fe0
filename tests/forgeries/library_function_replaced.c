// 3 steps/step_03 does-not-compile|UNTOUCHED
// Defines a function of the library itself.
void trace_write(const char *event, const void *fields)
{
    (void)event;
    (void)fields;
}

static void forge(void)
{
}
