// 1 solutions/step_01 passed
// No forgery: names of the C library for something else, of which nothing is said.
int y1 = 3;

int rindex(int a, int b)
{
    return a + b;
}

static void forge(void)
{
    y1 = rindex(y1, 1);
}
