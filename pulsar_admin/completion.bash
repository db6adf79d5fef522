%(function)s() {
    local kind word help
    COMPREPLY=()
    while IFS=$'\t' read -r kind word help; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$word") ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" %(variable)s=bash_complete "$1")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace
    fi
}
complete -o nosort -F %(function)s %(program)s
