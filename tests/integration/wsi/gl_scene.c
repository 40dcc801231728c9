/* A GL program: frames of triangles, of which the last stays on the screen.
 *
 * The renderer goes to standard error, two pixels of the last frame to standard output. */
#include <GL/gl.h>
#include <GL/glx.h>
#include <X11/Xlib.h>
#include <stdio.h>

enum {
    WIDTH = 320,
    HEIGHT = 240,
    FRAMES = 8,
    LAST = 4, /* shown so often: drivers may drop what is on its way when a program ends */
};

static Window make_window(Display *display, const XVisualInfo *visual)
{
    Window root = DefaultRootWindow(display);
    XSetWindowAttributes attributes = {
        .override_redirect = True,
        .colormap = XCreateColormap(display, root, visual->visual, AllocNone)};
    Window window =
        XCreateWindow(display, root, 40, 30, WIDTH, HEIGHT, 0, visual->depth, InputOutput,
                      visual->visual, CWOverrideRedirect | CWColormap, &attributes);
    XMapWindow(display, window);
    XSync(display, False);
    return window;
}

static void draw(int frame)
{
    float shift = (float)frame / 16.0f;
    glViewport(0, 0, WIDTH, HEIGHT);
    glClearColor(0.25f, 0.5f, 0.75f, 1.0f);
    glClear(GL_COLOR_BUFFER_BIT | GL_DEPTH_BUFFER_BIT);
    glEnable(GL_DEPTH_TEST);
    glBegin(GL_TRIANGLES);
    glColor3f(1.0f, 0.0f, 0.0f);
    glVertex3f(-0.75f + shift, -0.5f, 0.5f);
    glVertex3f(0.25f + shift, -0.5f, 0.5f);
    glVertex3f(-0.25f + shift, 0.75f, 0.5f);
    glColor3f(0.0f, 1.0f, 0.0f);
    glVertex3f(-0.5f, -0.75f, 0.0f);
    glVertex3f(0.5f, -0.75f, 0.0f);
    glVertex3f(0.0f, 0.25f, 0.0f);
    glEnd();
}

static unsigned pixel(int x, int y)
{
    unsigned char rgba[4] = {0};
    glReadPixels(x, y, 1, 1, GL_RGBA, GL_UNSIGNED_BYTE, rgba);
    return (unsigned)rgba[0] << 16 | (unsigned)rgba[1] << 8 | rgba[2];
}

int main(void)
{
    Display *display = XOpenDisplay(NULL);
    if (!display) {
        printf("skip: no display\n");
        return 77;
    }
    int wanted[] = {GLX_RGBA, GLX_RED_SIZE,   8,  GLX_GREEN_SIZE,   8,   GLX_BLUE_SIZE,
                    8,        GLX_DEPTH_SIZE, 24, GLX_DOUBLEBUFFER, None};
    XVisualInfo *visual = glXChooseVisual(display, DefaultScreen(display), wanted);
    GLXContext context = visual ? glXCreateContext(display, visual, NULL, True) : NULL;
    if (!context) {
        printf("skip: no GL with double buffers and depth\n");
        return 77;
    }
    Window window = make_window(display, visual);
    glXMakeCurrent(display, window, context);
    fprintf(stderr, "%s\n", (const char *)glGetString(GL_RENDERER));
    for (int i = 1; i < FRAMES + LAST; i++) {
        draw(i < FRAMES ? i : FRAMES);
        if (i == FRAMES)
            printf("%06x %06x\n", pixel(2, 2), pixel(WIDTH / 2, HEIGHT / 4));
        glXSwapBuffers(display, window);
    }
    glFinish();
    glXMakeCurrent(display, None, NULL);
    glXDestroyContext(display, context);
    XFree(visual);
    XCloseDisplay(display);
    return 0;
}
