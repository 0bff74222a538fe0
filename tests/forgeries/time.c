// 1 solutions/step_01 hung
// Computes without end.
static void forge(void)
{
    for (volatile int i = 0;; i++)
        continue;
}
