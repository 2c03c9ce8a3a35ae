"""System call numbers by name, for the machines that Cenote runs on. Only the calls that the walls name."""

from __future__ import annotations

import os
from typing import Final, Literal

Machine = Literal["x86_64", "aarch64"]

HIGHEST: Final = 471
"""The newest call these tables were checked against (Linux 6.19). Calls above it did not exist then."""

# name: (x86_64, aarch64); None where the machine has no such call
_NUMBERS: Final[dict[str, tuple[int | None, int | None]]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # kernel interfaces with a long record of holes
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "vmsplice": (278, 75),
    # operations that count against all of the machine
    "io_setup": (206, 0),
    "io_destroy": (207, 1),
    "io_submit": (209, 2),
    "io_cancel": (210, 3),
    "io_getevents": (208, 4),
    "io_pgetevents": (333, 292),
    "sync": (162, 81),
    "syncfs": (306, 267),
    # keyrings: shared per user, not per namespace
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    # namespaces and the mount table
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone3": (435, 435),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "listns": (470, 470),
    # files by handle, past any path
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "nfsservctl": (180, 42),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "lookup_dcookie": (212, 18),
    "lsm_set_self_attr": (460, 460),
    "lsm_get_self_attr": (459, 459),
    "lsm_list_modules": (461, 461),
    # x86 relics
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "create_module": (174, None),
    "get_kernel_syms": (177, None),
    "query_module": (178, None),
    # memory that outlives its process and is not on the jail's disk
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmdt": (67, 197),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184),
    "mq_getsetattr": (245, 185),
    # judged by their arguments
    "mmap": (9, 222),
    "fcntl": (72, 25),
    "clone": (56, 220),
    "prctl": (157, 167),
    "ioctl": (16, 29),
    "personality": (135, 92),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "execveat": (322, 281),
    "setsockopt": (54, 208),
    # aimed at a process by its number
    "prlimit64": (302, 261),
    "setrlimit": (160, 164),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "ioprio_set": (251, 30),
    # metadata of files, which Landlock does not cover
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    # used to build the walls
    "seccomp": (317, 277),
    "capset": (126, 91),
    "close_range": (436, 436),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}


def machine() -> Machine:
    """The machine this process runs on. Raises OSError for one that the tables do not know."""
    name = os.uname().machine
    if name == "x86_64":
        return "x86_64"
    if name == "aarch64":
        return "aarch64"
    raise OSError(f"no system call table for {name}; Cenote's jails run on x86_64 and aarch64")


def number(name: str, on: Machine | None = None) -> int:
    """The number of a call. Raises KeyError for a call that is not in the table or not on that machine."""
    found = lookup(name, on or machine())
    if found is None:
        raise KeyError(name)
    return found


def lookup(name: str, on: Machine) -> int | None:
    """The number of a call, None where that machine does not have it."""
    return _NUMBERS[name][0 if on == "x86_64" else 1]
