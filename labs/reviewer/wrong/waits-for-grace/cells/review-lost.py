def lost():
    return [
        ["closer", "enter"],
        ["closer", "look"],
        ["umount", "unhook"],
        ["rcu", "grace"],
        ["umount", "put"],
        ["umount", "return"],
        ["closer", "drop"],
    ]
