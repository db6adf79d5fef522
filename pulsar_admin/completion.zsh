#compdef %(program)s
%(function)s() {
    local kind word help
    local -a words_found shown opened
    local line="${(j: :)words[1,CURRENT-1]} ${PREFIX}"
    while IFS=$'\t' read -r kind word help; do
        case $kind in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain)
                if [[ $word == */ ]]; then
                    opened+=("$word")
                else
                    words_found+=("$word")
                    shown+=("${word}${help:+ -- $help}")
                fi ;;
        esac
    done < <(COMP_LINE="$line" %(variable)s=zsh_complete ${words[1]})
    (( ${#opened} )) && compadd -U -Q -S '' -V opened -a opened
    (( ${#words_found} )) && compadd -U -Q -l -d shown -V unsorted -a words_found
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(function)s "$@"
else
    compdef %(function)s %(program)s
fi
