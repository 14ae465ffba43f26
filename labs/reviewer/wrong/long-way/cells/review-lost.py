def lost():
    return [
        ["holder", "lock"],
        ["holder", "unlock"],
        ["closer", "enter"],
        ["closer", "look"],
        ["umount", "unhook"],
        ["umount", "put"],
        ["umount", "return"],
        ["closer", "drop"],
    ]
