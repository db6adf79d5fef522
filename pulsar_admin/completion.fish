function %(function)s
    for line in (COMP_LINE=(commandline -cp) %(variable)s=fish_complete %(program)s)
        set -l parts (string split -m 2 \t -- $line)
        switch $parts[1]
            case dir
                __fish_complete_directories (commandline -ct)
            case file
                __fish_complete_path (commandline -ct)
            case plain
                printf '%%s\t%%s\n' $parts[2] "$parts[3]"
        end
    end
end
complete --no-files --keep-order --command %(program)s --arguments "(%(function)s)"
