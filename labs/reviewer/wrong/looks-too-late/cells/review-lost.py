def lost():
    return [
        ["closer", "enter"],
        ["umount", "unhook"],
        ["closer", "look"],
        ["umount", "put"],
        ["umount", "return"],
        ["closer", "drop"],
    ]
