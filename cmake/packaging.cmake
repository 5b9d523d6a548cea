# What `cmake --install` puts where, and the Debian package (cpack -G DEB).
#
# The manual page and the completion are printed by the program itself, when it is linked. The service belongs to the package only: its
# paths are fixed.
set(pages ${CMAKE_BINARY_DIR}/pages)
install(FILES ${pages}/espalier.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${pages}/espalier DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(DIRECTORY demo/model/ DESTINATION ${CMAKE_INSTALL_DATADIR}/espalier/model)
install(FILES packaging/copyright DESTINATION share/doc/espalier COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES packaging/espalier.service DESTINATION lib/systemd/system COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES packaging/espalier.toml DESTINATION /etc/espalier COMPONENT debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME espalier)
set(CPACK_PACKAGE_VENDOR Espalier)
set(CPACK_PACKAGE_CONTACT "Espalier maintainers <maintainers@espalier.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Runs Qwen3.5/3.6 models for coding agents on this machine")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL Unspecified debian)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "adduser, ca-certificates")
set(packaging ${CMAKE_SOURCE_DIR}/packaging)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    "${packaging}/postinst;${packaging}/prerm;${packaging}/postrm;${packaging}/conffiles")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
