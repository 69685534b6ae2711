//! What C's library declares globally: functions, variables and structs of the standard's and POSIX's
//! headers, which C++'s headers bring along. No namespace beside them can have such a name.

const GLOBALS: &str = "\
    a64l abort abs accept accept4 access acct acos acosh adjtime alarm aligned_alloc alloca arc4random asctime asin \
    asinh asprintf atan atan2 atanh atexit atof atoi atol atoll basename bcmp bcopy be16toh be32toh be64toh bind \
    bindresvport bindresvport6 bindtextdomain brk bsearch btowc bzero calloc canonicalize cbrt ceil chdir chmod \
    chown chroot clearenv clearerr clock clone close close_range closefrom cmsghdr confstr connect copy_file_range \
    copysign cos cosh creat crypt ctermid ctime cuserid daemon daylight dcgettext dcngettext dgettext difftime \
    digittoint div dngettext dprintf drand48 drem dup dup2 dup3 duplocale dysize eaccess ecvt endusershell environ \
    erand48 erf erfc euidaccess execl execle execlp execv execve execveat execvp execvpe exit exp exp10 exp2 expm1 \
    fabs faccessat fallocate fchdir fchmod fchmodat fchown fchownat fclose fcloseall fcntl fcvt fdatasync fdim \
    fdopen feof ferror fexecve fflush ffs ffsl ffsll fgetc fgetln fgetpos fgets fgetwc fgetws file_handle fileno \
    finite flock flockfile floor fma fmax fmaximum fmaxmag fmemopen fmin fminimum fminmag fmod fopen fopencookie \
    fork fpathconf fpclassify fprintf fputc fputs fputwc fputws fread free freelocale freopen frexp fromfp fromfpx \
    fscanf fseek fseeko fsetpos fstat fstatat fsync ftell ftello ftruncate ftrylockfile funlockfile futimens futimes \
    futimesat fwide fwprintf fwrite fwscanf gamma gcvt getc getchar getcpu getcwd getdate getdelim getdomainname \
    getdtablesize getegid getentropy getenv geteuid getgid getgroups gethostid gethostname getipv4sourcefilter \
    getitimer getline getloadavg getlogin getopt getpagesize getpass getpayload getpeername getpgid getpgrp getpid \
    getppid getpt getresgid getresuid getsid getsockname getsockopt getsourcefilter getsubopt gettext \
    gettid gettimeofday getuid getumask getusershell getw getwc getwchar getwd gmtime grantpt group_member gsignal \
    htobe16 htobe32 htole16 htole32 htonl htons hypot ilogb imaxabs imaxdiv index initstate iovec isalnum \
    isalpha isascii isatty isblank iscanonical iscntrl isctype isdigit iseqsig isfdtype isfinite isgraph isgreater \
    isgreaterequal isinf isless islessequal islessgreater islower isnan isnormal isprint ispunct issignaling isspace \
    issubnormal isunordered isupper iswalnum iswalpha iswblank iswcntrl iswctype iswdigit iswgraph iswlower iswprint \
    iswpunct iswspace iswupper iswxdigit isxdigit iszero itimerspec itimerval j0 j1 jn jrand48 kill killpg l64a labs \
    lchmod lchown lcong48 lconv ldexp ldiv le16toh le32toh le64toh lerp lgamma linger link linkat listen llabs lldiv \
    llogb llrint llround localeconv localtime lockf log log10 log1p log2 logb longjmp lrand48 lrint lround lseek \
    lstat lutimes madvise malloc mblen mbrlen mbrtowc mbsinit mbsnrtowcs mbsrtowcs mbstowcs mbtowc \
    memccpy memchr memcmp memcpy memfrob memmem memmove mempcpy memrchr memset mincore mkdir mkdirat \
    mkdtemp mkfifo mkfifoat mknod mknodat mkostemp mkostemps mkstemp mkstemps mktemp mktime mlock mlock2 mlockall \
    mmap mmsghdr modf mprotect mrand48 mremap msghdr msync munlock munlockall munmap nan nanosleep nearbyint \
    newlocale nextafter nextdown nexttoward nextup ngettext nice nrand48 ntohl ntohs obstack on_exit open openat \
    optarg opterr optind optopt osockaddr pathconf pause pclose perror pipe pipe2 poll popen pow ppoll pread \
    printf profil pselect psiginfo psignal ptsname putc putchar putenv puts putw putwc putwchar pwrite qecvt qfcvt \
    qgcvt qsort quick_exit raise rand random random_data rawmemchr read readahead readlink readlinkat \
    realloc reallocarray reallocf realpath recv recvfrom recvmmsg recvmsg remainder remove remquo rename renameat \
    renameat2 revoke rewind rindex rint rmdir round roundeven rpmatch rusage sbrk scalb scalbln scalbn scanf seed48 \
    select send sendmmsg sendmsg sendto setbuf setbuffer setdomainname setegid setenv seteuid setgid sethostid \
    sethostname setipv4sourcefilter setitimer setlinebuf setlocale setlogin setns setpayload setpayloadsig setpgid \
    setpgrp setregid setresgid setresuid setreuid setsid setsockopt setsourcefilter setstate \
    settimeofday setuid setusershell setvbuf shutdown sigaction sigaddset sigaltstack sigandset sigblock sigcontext \
    sigdelset sigemptyset sigevent sigfillset siggetmask sighold sigignore siginterrupt sigisemptyset sigismember \
    sigmask signal signbit signgam significand sigorset sigpause sigpending sigprocmask sigqueue sigrelse sigreturn \
    sigset sigsetmask sigstack sigsuspend sigtimedwait sigval sigwait sigwaitinfo sin sincos sinh sleep snprintf \
    sockaddr sockatmark socket socketpair splice sprintf sqrt srand srand48 srandom sscanf ssignal stat statx stpcpy \
    stpncpy strcasecmp strcasestr strcat strchr strchrnul strcmp strcoll strcpy strcspn strdup strdupa strerror \
    strfromd strfromf strfroml strfry strftime strlcat strlcpy strlen strncasecmp strncat strncmp strncpy strndup \
    strndupa strnlen strpbrk strptime strrchr strsep strsignal strspn strstr strtod strtof strtoimax strtok strtol \
    strtold strtoll strtonum strtoq strtoul strtoull strtoumax strtouq strverscmp strxfrm swab swprintf swscanf \
    symlink symlinkat sync syncfs syscall sysconf system tan tanh tcgetpgrp tcsetpgrp tee tempnam textdomain tgamma \
    tgkill time timegm timelocal timer_create timer_delete timeradd timerclear timercmp timerisset timersub timespec \
    timeval timex timezone tm tmpfile tmpnam toascii tolower totalorder totalordermag toupper towctrans \
    towlower towupper trunc truncate ttyname ttyslot tzname tzset ualarm ucred ufromfp ufromfpx uint ulong umask \
    ungetc ungetwc unlink unlinkat unlockpt unsetenv unshare uselocale ushort usleep utimensat utimes va_list \
    valloc vasprintf vdprintf vfork vfprintf vfscanf vfwprintf vfwscanf vhangup vmsplice vprintf vscanf vsnprintf \
    vsprintf vsscanf vswprintf vswscanf vwprintf vwscanf wait wait3 wait4 waitid waitpid wcpcpy wcpncpy wcrtomb \
    wcscasecmp wcscat wcschr wcschrnul wcscmp wcscoll wcscpy wcscspn wcsdup wcsftime wcslen wcsncasecmp wcsncat \
    wcsncmp wcsncpy wcsnlen wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod wcstof wcstoimax wcstok wcstol \
    wcstold wcstoll wcstombs wcstoq wcstoul wcstoull wcstoumax wcstouq wcswcs wcswidth wcsxfrm wctob wctomb wctrans \
    wctype wcwidth wmemchr wmemcmp wmemcpy wmemmove wmempcpy wmemset wprintf write wscanf y0 y1 yn";

/// Whether C's library has this name.
pub(crate) fn declares(word: &str) -> bool {
    GLOBALS.split_whitespace().any(|global| global == word)
}
