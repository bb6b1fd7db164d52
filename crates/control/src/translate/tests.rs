use super::*;
#[test]
fn quickstart() {
    let loaded = crate::load_once(std::path::Path::new("../../examples/quickstart"), &TranslateOptions::default());
    println!("{:#?}", loaded.config.hosts);
    println!("{:#?}", loaded.config.upstreams);
    for problem in loaded.problems { println!("{problem}"); }
}
